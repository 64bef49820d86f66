"""The engine under a fixed load: many at once with most of their prompts in common, a mix, or a long conversation.

In: an engine and a Workload, a Mix or a Continued. Out: Figures. No texts, no log: it measures scheduling, model and
sampling.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from engine.engine import Engine
from engine.runner import Sampled
from engine.sequence import Sequence, blocks_for
from schemas.events import Sampling
from schemas.ids import ReplyId
from schemas.prefix import BLOCK_TOKENS


@dataclass(frozen=True)
class Workload:
    """`shared` of the `prompt` tokens are the same in all requests; each reply has `output` tokens, greedy."""

    requests: int
    prompt: int = 320
    shared: int = 256
    output: int = 64

    @property
    def blocks(self) -> int:
        """Of keys and values that all of it takes at once."""
        shared = self.shared // BLOCK_TOKENS
        return shared + self.requests * (blocks_for(self.prompt + self.output) - shared)

    def sequences(self, vocabulary: int) -> list[Sequence]:
        """Nothing is in common with another Workload's, so that its cache does not help."""
        draw = random.Random(f"{self}").choices
        ids = range(3, vocabulary)
        shared = draw(ids, k=self.shared)
        sampling = Sampling(self.output, temperature=0, ignore_eos=True)
        prompts = [(*shared, *draw(ids, k=self.prompt - self.shared)) for _ in range(self.requests)]
        return [Sequence(ReplyId(f"{self}-{n}"), 1, ids, sampling) for n, ids in enumerate(prompts)]


@dataclass(frozen=True)
class Mix:
    """Prompts of 16 to 512 tokens, every third with 256 in common, replies of 8 to 128, arriving at random, about one
    in each `every` steps; drawn from a fixed seed."""

    requests: int
    every: int = 4

    def arrivals(self, vocabulary: int) -> list[tuple[int, Sequence]]:
        """The step of each, with the sequence."""
        draw = random.Random(f"{self}")
        ids, step, found = range(3, vocabulary), 0, []
        shared = draw.choices(ids, k=256)
        for n in range(self.requests):
            own = draw.choices(ids, k=draw.randint(16, 256 if n % 3 == 0 else 512))
            sampling = Sampling(draw.randint(8, 128), temperature=0, ignore_eos=True)
            found.append(
                (step, Sequence(ReplyId(f"{self}-{n}"), 1, (*shared, *own) if n % 3 == 0 else (*own,), sampling))
            )
            step += draw.randint(0, 2 * self.every)
        return found


@dataclass(frozen=True)
class Continued:
    """The next turn of a long conversation: `cached` tokens that were computed before, and `fresh` ones behind them."""

    cached: int = 2000
    fresh: int = 300

    def sequences(self, vocabulary: int) -> tuple[Sequence, Sequence]:
        """The turn before, and the next one."""
        ids = random.Random(f"{self}").choices(range(3, vocabulary), k=self.cached + self.fresh)
        sampling = Sampling(2, temperature=0, ignore_eos=True)
        before = Sequence(ReplyId(f"{self}-before"), 1, tuple(ids[: self.cached]), sampling)
        return before, Sequence(ReplyId(f"{self}-next"), 1, tuple(ids), sampling)


@dataclass(frozen=True)
class Figures:
    """Seconds, but for rates: `tokens_per_s` of all requests together, `hit_rate` of the prompts' tokens."""

    requests: int
    first_token: tuple[float, float]
    between_tokens: tuple[float, float]
    tokens_per_s: float
    hit_rate: float
    preemptions: int


def measure(engine: Engine, workload: Workload, vocabulary: int, told: Callable[[int], None]) -> Figures:
    """Runs it to the end, all at once; `told` hears how many tokens have come. Times are (p50, p99)."""
    return run(engine, [(0, sequence) for sequence in workload.sequences(vocabulary)], told)


def time_to_first_token(
    engine: Engine, continued: Continued, vocabulary: int, told: Callable[[int], None]
) -> tuple[float, float]:
    """Seconds of the whole prompt computed cold, and of the next turn behind what its conversation left cached; `told`
    hears how many of the three prompts are computed."""
    _, cold = replace(continued, fresh=continued.fresh + 1).sequences(vocabulary)
    before, following = continued.sequences(vocabulary)
    seconds = []
    for one in (cold, before, following):
        seconds.append(run(engine, [(0, one)], lambda _: None).first_token[0])
        told(len(seconds))
    return seconds[0], seconds[2]


def run(engine: Engine, arrivals: list[tuple[int, Sequence]], told: Callable[[int], None]) -> Figures:
    """Adds each sequence at its step, or as soon as there is nothing else to do, and runs all to their most tokens."""
    began, step, waiting = time.perf_counter(), 0, deque(arrivals)
    added: dict[Sequence, float] = {}
    at: dict[Sequence, list[float]] = {sequence: [] for _, sequence in arrivals}
    while waiting or engine.has_work:
        while waiting and (waiting[0][0] <= step or not engine.has_work):
            _, sequence = waiting.popleft()
            engine.add(sequence)
            added[sequence] = time.perf_counter()
        outcomes = engine.step()
        now, step = time.perf_counter(), step + 1
        for sequence, outcome in outcomes:
            if isinstance(outcome, Sampled):
                sequence.output.append(outcome.token_id)
                at[sequence].append(now)
                if sequence.position == sequence.sampling.max_tokens:
                    engine.finish(sequence)
        told(sum(map(len, at.values())))
    return _figures(at, added, time.perf_counter() - began)


def _figures(at: dict[Sequence, list[float]], added: dict[Sequence, float], wall: float) -> Figures:
    return Figures(
        len(at),
        _p50_p99([times[0] - added[sequence] for sequence, times in at.items()]),
        _p50_p99([b - a for times in at.values() for a, b in pairwise(times)]),
        sum(map(len, at.values())) / wall,
        sum(sequence.num_cached_tokens for sequence in at) / sum(len(sequence.prompt) for sequence in at),
        sum(sequence.recomputations for sequence in at),
    )


def _p50_p99(values: list[float]) -> tuple[float, float]:
    ordered = sorted(values) or [0.0]
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
