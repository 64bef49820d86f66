"""One attempt at a reply, as scheduler and runner see it: its tokens, and how many of them are computed.

In: prompt ids, and for a continuation the ids that were accepted before. `output` grows by one id per step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.events import Sampling
from schemas.ids import ReplyId


@dataclass(eq=False, slots=True)
class Sequence:
    """`output` starts with the accepted ids; `num_computed` counts tokens whose keys and values are cached."""

    reply: ReplyId
    attempt: int
    prompt: tuple[int, ...]
    sampling: Sampling
    accepted: tuple[int, ...] = ()
    output: list[int] = field(init=False)
    num_computed: int = 0

    def __post_init__(self) -> None:
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

    @property
    def uncomputed(self) -> list[int]:
        """The ids that the next step has to compute; at least one."""
        if self.num_computed < len(self.prompt):
            return [*self.prompt[self.num_computed :], *self.output]
        return self.output[self.num_computed - len(self.prompt) :]
