"""One attempt at a reply, as scheduler and runner see it: its tokens, and how many of them are computed.

In: prompt ids, and for a continuation the ids that were accepted before. `output` grows by one id per step. The
invariant: keys and values of the first `num_computed_tokens` tokens lie in the blocks of `block_table`, 16 in each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import inf

from schemas.events import Sampling
from schemas.ids import ReplyId
from schemas.prefix import BLOCK_TOKENS
from topics.catalog import TIERS

# Beyond these a record outgrows the log, or a float32 logit becomes infinite and then no number.
MOST_LOGPROBS = 20
MOST_PENALTY = 1e6


class Status(Enum):
    """Where a sequence is. A preempted one waits too, in front of those that have not begun."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    ENDED = "ended"


@dataclass(eq=False, slots=True, weakref_slot=True)
class Sequence:
    """`output` starts with the accepted ids. `arrival` orders the waiting; the scheduler numbers them.

    `salt` names whose blocks it may share; `block_hashes` are those of its full blocks, as far as they were asked for.
    `num_cached_tokens` counts what its last start found computed; `recomputations` how often it was preempted.
    """

    reply: ReplyId
    attempt: int
    prompt: tuple[int, ...]
    sampling: Sampling
    accepted: tuple[int, ...] = ()
    tier: str = "paid"
    salt: str = ""
    output: list[int] = field(init=False)
    status: Status = Status.WAITING
    arrival: int = 0
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    recomputations: int = 0
    block_table: list[int] = field(default_factory=list)
    block_hashes: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raises ValueError for what no step could compute: it would take the whole batch with it."""
        if not self.prompt:
            raise ValueError("an empty prompt")
        if self.tier not in TIERS:
            raise ValueError(f"tier {self.tier!r}: expected one of {', '.join(TIERS)}")
        _check(self.sampling)
        self.output = list(self.accepted)

    @property
    def num_tokens(self) -> int:
        return len(self.prompt) + len(self.output)

    @property
    def max_tokens(self) -> int:
        """The most tokens that prompt and reply together can have."""
        return len(self.prompt) + self.sampling.max_tokens

    @property
    def position(self) -> int:
        """The place in the reply, from 0, of the token that is sampled next."""
        return len(self.output)

    def tokens(self, start: int, end: int) -> list[int]:
        """The ids at positions `start` to `end`, counted from the prompt's first."""
        prompt = len(self.prompt)
        return [*self.prompt[start:end], *self.output[max(0, start - prompt) : max(0, end - prompt)]]


@dataclass(frozen=True, slots=True)
class Chunk:
    """What a step computes of a sequence: its next `num_tokens` tokens, from its `num_computed_tokens` on."""

    sequence: Sequence
    num_tokens: int

    @property
    def samples(self) -> bool:
        """Whether it reaches the sequence's end, so that the next token can be drawn."""
        return self.sequence.num_computed_tokens + self.num_tokens == self.sequence.num_tokens


def _check(sampling: Sampling) -> None:
    if not (0 <= sampling.temperature < inf and sampling.top_p > 0 and sampling.top_k >= 0):
        raise ValueError(f"temperature, top_p and top_k of {sampling} cannot be drawn by")
    penalties = abs(sampling.presence_penalty), abs(sampling.frequency_penalty), sampling.repetition_penalty
    if not (all(penalty <= MOST_PENALTY for penalty in penalties) and sampling.repetition_penalty >= 1 / MOST_PENALTY):
        raise ValueError(f"penalties of {sampling} cannot be drawn by: at most {MOST_PENALTY:g}")
    if sampling.top_logprobs is not None and not 0 <= sampling.top_logprobs <= MOST_LOGPROBS:
        raise ValueError(f"top_logprobs={sampling.top_logprobs}: expected 0 to {MOST_LOGPROBS}")


def blocks_for(tokens: int) -> int:
    """How many blocks hold so many tokens."""
    return -(-tokens // BLOCK_TOKENS)
