"""What the replica asks of whatever makes its tokens."""

from __future__ import annotations

from typing import Protocol

from engine.sequence import Sequence


class Runner(Protocol):
    """Makes tokens. Which one comes next depends on a sequence's prompt, output and sampling, and on nothing else."""

    @property
    def fingerprint(self) -> str:
        """Two runners of one fingerprint continue each other's replies token for token."""
        ...

    def step(self, sequences: list[Sequence]) -> list[int]:
        """One sampled token id per sequence; computes what is not computed yet and sets `num_computed_tokens`.

        The caller appends the id to the sequence before the next step, or releases the sequence.
        """
        ...

    def release(self, sequence: Sequence) -> None:
        """Frees what is cached of a sequence; safe to repeat. If it comes back, it is computed from its start."""
        ...
