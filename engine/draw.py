"""What a token is drawn by: the reply's sampling, the token's place in it, counted from 0, and the ids before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.events import Sampling

# Divided by less, a logit is infinite in float32; no other token has a chance left long before.
_COLDEST = 1e-5


@dataclass(frozen=True, slots=True)
class Draw:
    """`output` are the reply's ids before it, however often it was cut."""

    sampling: Sampling
    position: int
    output: Sequence[int] = ()

    @property
    def greedy(self) -> bool:
        return self.sampling.temperature < _COLDEST
