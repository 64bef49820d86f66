"""What the engine asks of whatever makes its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.sequence import Chunk


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural logarithms of probabilities, before penalties and temperature: the drawn token's, the likeliest ids'."""

    chosen: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Sampled:
    """A drawn token id, with its log probabilities if they were asked for."""

    token_id: int
    logprobs: Logprobs | None = None


class Runner(Protocol):
    """Makes tokens. Which one comes next depends on a sequence's prompt, output and sampling, and on nothing else."""

    @property
    def fingerprint(self) -> str:
        """Two runners of one fingerprint continue each other's replies token for token."""
        ...

    @property
    def num_blocks(self) -> int:
        """How many blocks of 16 tokens its key-value cache has."""
        ...

    def compute(self, chunks: list[Chunk]) -> list[Sampled]:
        """Computes the chunks into their sequences' blocks; one token for each chunk that samples, in their order."""
        ...
