"""Whole generations through the engine, with every way of mixing them that a test may want."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from engine.engine import Change, Engine
from engine.runner import Runner, Sampled
from engine.scheduler import Limits
from engine.sequence import Sequence
from schemas.events import Sampling
from schemas.ids import ReplyId

NUMBERS = count()


@dataclass(frozen=True)
class Generation:
    """One reply; `after` steps it arrives, the engine's first being step 0."""

    prompt: tuple[int, ...]
    sampling: Sampling
    accepted: tuple[int, ...] = ()
    after: int = 0


def engine(runner: Runner, **limits: Any) -> Engine:
    return Engine(runner, Limits(**{"reserve": 0, "step_s": 1e9} | limits), clock=lambda: 0.0)


def generate(runner: Runner, *generations: Generation, **limits: Any) -> list[list[int]]:
    """All `max_tokens` ids of each, whatever they say, from an engine of their own."""
    return [one.output for one in run(engine(runner, **limits), *generations)]


def run(
    on: Engine, *generations: Generation, told: Callable[[Sequence, Sampled], object] = lambda *_: None
) -> list[Sequence]:
    """The sequences, ended; `told` hears of each token. Raises AssertionError for one that was given up."""
    sequences = [Sequence(ReplyId(f"r{next(NUMBERS)}"), 1, g.prompt, g.sampling, g.accepted) for g in generations]
    arriving = sorted(zip(generations, sequences, strict=True), key=lambda pair: pair[0].after)
    step = 0
    while arriving or on.has_work:
        while arriving and (arriving[0][0].after <= step or not on.has_work):
            on.add(arriving.pop(0)[1])
        for sequence, outcome in on.step():
            assert outcome is not Change.GIVEN_UP, sequence
            if isinstance(outcome, Sampled):
                told(sequence, outcome)
                sequence.output.append(outcome.token_id)
                if sequence.position >= sequence.sampling.max_tokens:
                    on.finish(sequence)
        step += 1
    return sequences
