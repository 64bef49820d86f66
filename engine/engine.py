"""The engine: sequences are added, steps are taken, tokens come out.

In: sequences. Out: for each step, what became of whom. The caller appends a token to its sequence, or finishes it,
before the next step. It neither knows texts nor writes records; whatever runs beneath it, model or script, is a Runner.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from engine.block_manager import BlockManager
from engine.runner import Runner, Sampled
from engine.scheduler import Limits, Scheduler, Step
from engine.sequence import Sequence
from schemas.ids import ReplyId

STEPS_REMEMBERED = 200


class Change(Enum):
    """ADMITTED: it runs, `num_cached_tokens` were there. PREEMPTED: it waits for room, to be computed anew.
    GIVEN_UP: it was preempted too often, and this engine has forgotten it.
    """

    ADMITTED = "admitted"
    PREEMPTED = "preempted"
    GIVEN_UP = "given up"


Outcome: TypeAlias = tuple[Sequence, Change | Sampled]


@dataclass(frozen=True)
class Totals:
    """What an engine has done since it was made. Of the `prompt_tokens` that sequences began with, the accepted ones of
    a continuation among them, `cached_tokens` were found computed; what a preempted one computes anew is in neither.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    given_up: int = 0
    steps: int = 0


class Engine:
    """Driven by one thread. `clock` tells seconds: how long steps take bounds the next ones."""

    def __init__(self, runner: Runner, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.fingerprint = runner.fingerprint
        self.max_running = limits.max_running
        self.totals = Totals()
        self._runner, self._clock = runner, clock
        self._scheduler = Scheduler(BlockManager(runner.num_blocks), limits)
        self._sequences: dict[tuple[ReplyId, int], Sequence] = {}
        self._step_ms: deque[float] = deque(maxlen=STEPS_REMEMBERED)

    @property
    def has_work(self) -> bool:
        return bool(self._sequences)

    @property
    def steps(self) -> int:
        return self.totals.steps

    @property
    def num_running(self) -> int:
        return len(self._scheduler.running)

    @property
    def num_waiting(self) -> int:
        return self._scheduler.num_waiting

    @property
    def free_blocks(self) -> int:
        """Blocks that can be given out, whether or not they still hold a prefix."""
        return self._scheduler.blocks.num_free

    @property
    def num_blocks(self) -> int:
        return self._scheduler.blocks.num_blocks

    @property
    def p99_step_ms(self) -> float:
        """Of the last 200 steps."""
        ordered = sorted(self._step_ms)
        return ordered[len(ordered) * 99 // 100] if ordered else 0.0

    def add(self, sequence: Sequence) -> None:
        """Raises NeverFits, with the numbers, when no wait would help. An attempt is added once."""
        self._scheduler.add(sequence)
        self._sequences[sequence.reply, sequence.attempt] = sequence

    def abort(self, reply: ReplyId, attempt: int) -> None:
        """Forgets an attempt; its blocks are free for the next step. Safe to repeat."""
        if sequence := self._sequences.get((reply, attempt)):
            self.finish(sequence)

    def finish(self, sequence: Sequence) -> None:
        """The reply has ended: like an abort."""
        self._scheduler.end(sequence)
        self._sequences.pop((sequence.reply, sequence.attempt), None)

    def step(self) -> list[Outcome]:
        """Computes one step. What its runner raises, it raises, and nothing of that step counts."""
        step = self._scheduler.schedule()
        began = self._clock()
        try:
            tokens = self._runner.compute(step.chunks) if step.chunks else []
        except Exception:
            self._scheduler.failed(step)
            raise
        seconds = self._clock() - began
        sampling = [chunk.sequence for chunk in step.chunks if chunk.samples]
        self._scheduler.computed(step, seconds)
        self._step_ms.append(seconds * 1000)
        self._count(step, len(tokens))
        for sequence in step.given_up:
            self._sequences.pop((sequence.reply, sequence.attempt))
        return [
            *((sequence, Change.PREEMPTED) for sequence in step.preempted),
            *((sequence, Change.GIVEN_UP) for sequence in step.given_up),
            *((sequence, Change.ADMITTED) for sequence in step.admitted),
            *zip(sampling, tokens, strict=True),
        ]

    def _count(self, step: Step, tokens: int) -> None:
        begun, so_far = [sequence for sequence in step.admitted if not sequence.recomputations], self.totals
        self.totals = Totals(
            so_far.prompt_tokens + sum(sequence.num_tokens for sequence in begun),
            so_far.cached_tokens + sum(sequence.num_cached_tokens for sequence in begun),
            so_far.generated_tokens + tokens,
            so_far.preemptions + len(step.preempted),
            so_far.given_up + len(step.given_up),
            so_far.steps + 1,
        )
