"""The engine under a fixed load: so many requests at once, with most of their prompts in common.

In: an engine and a Workload. Out: Figures. No texts, no log: what is measured is scheduling, model and sampling.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from engine.engine import Engine
from engine.runner import Sampled
from engine.sequence import Sequence
from schemas.events import Sampling
from schemas.ids import ReplyId


@dataclass(frozen=True)
class Workload:
    """`shared` of the `prompt` tokens are the same in all requests; each reply has `output` tokens, greedy."""

    requests: int
    prompt: int = 320
    shared: int = 256
    output: int = 64

    def sequences(self, vocabulary: int) -> list[Sequence]:
        """Nothing is in common with another Workload's, so that its cache does not help."""
        draw = random.Random(f"{self}").choices
        ids = range(3, vocabulary)
        shared = draw(ids, k=self.shared)
        sampling = Sampling(self.output, temperature=0, ignore_eos=True)
        prompts = [(*shared, *draw(ids, k=self.prompt - self.shared)) for _ in range(self.requests)]
        return [Sequence(ReplyId(f"{self}-{n}"), 1, ids, sampling) for n, ids in enumerate(prompts)]


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
    """Runs it to the end; `told` hears how many tokens have come. Times are (p50, p99)."""
    sequences = workload.sequences(vocabulary)
    began = time.perf_counter()
    for sequence in sequences:
        engine.add(sequence)
    at: dict[Sequence, list[float]] = {sequence: [] for sequence in sequences}
    while engine.has_work:
        outcomes = engine.step()
        now = time.perf_counter()
        for sequence, outcome in outcomes:
            if isinstance(outcome, Sampled):
                sequence.output.append(outcome.token_id)
                at[sequence].append(now)
                if sequence.position == workload.output:
                    engine.finish(sequence)
        told(sum(map(len, at.values())))
    wall = time.perf_counter() - began
    return Figures(
        workload.requests,
        _p50_p99([times[0] - began for times in at.values()]),
        _p50_p99([b - a for times in at.values() for a, b in pairwise(times)]),
        sum(map(len, at.values())) / wall,
        sum(sequence.num_cached_tokens for sequence in sequences) / (workload.requests * workload.prompt),
        sum(sequence.recomputations for sequence in sequences),
    )


def _p50_p99(values: list[float]) -> tuple[float, float]:
    ordered = sorted(values) or [0.0]
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
