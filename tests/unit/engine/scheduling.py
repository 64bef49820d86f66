"""A scheduler with a runner that computes nothing: the next token is a function of the tokens before it."""

from __future__ import annotations

from itertools import count
from typing import Any

from engine.block_manager import BlockManager
from engine.scheduler import Limits, Scheduler, Step
from engine.sequence import Sequence
from schemas.events import Sampling
from schemas.ids import ReplyId

NUMBERS = count()


def sequence(prompt: int | tuple[int, ...], max_tokens: int = 4, **fields: Any) -> Sequence:
    """`prompt` may be a length: then its ids are those of nobody else."""
    n = next(NUMBERS)
    ids = tuple(range(n * 10_000, n * 10_000 + prompt)) if isinstance(prompt, int) else prompt
    return Sequence(ReplyId(f"r{n}"), 1, ids, Sampling(max_tokens), **fields)


def scheduler(blocks: int, **limits: Any) -> Scheduler:
    return Scheduler(BlockManager(blocks), Limits(**{"reserve": 0, "step_s": 1e9} | limits))


def next_token(of: Sequence) -> int:
    return hash((of.prompt[-3:], tuple(of.output[-3:]))) % 50


def run(of: Scheduler, step: Step | None = None, seconds: float = 0.0) -> Step:
    """One step, and the end of those that have all their tokens."""
    step = step or of.schedule()
    sampling = [chunk.sequence for chunk in step.chunks if chunk.samples]
    of.computed(step, seconds)
    for one in sampling:
        one.output.append(next_token(one))
        if one.position == one.sampling.max_tokens:
            of.end(one)
    return step


def run_out(of: Scheduler, steps: int = 10_000) -> list[Step]:
    """Until nothing runs or waits. Raises AssertionError when that takes more than `steps`."""
    done: list[Step] = []
    while of.running or of.num_waiting:
        assert len(done) < steps, f"{len(of.running)} still run and {of.num_waiting} wait after {steps} steps"
        done.append(run(of))
    return done


def check(of: Scheduler, known: list[Sequence]) -> None:
    """Every block is in one place and every sequence too."""
    manager = of.blocks
    used: dict[int, int] = {}
    for one in known:
        assert len(set(one.block_table)) == len(one.block_table), "a block twice in one table"
        for block in one.block_table:
            used[block] = used.get(block, 0) + 1
    assert {n: b.ref_count for n, b in enumerate(manager.blocks) if b.ref_count} == used
    free = set(manager._free)
    cached = {n for n in free if manager.blocks[n].hash is not None}
    assert not free & used.keys()
    assert len(free - cached) + len(used) + len(cached) == manager.num_blocks
    assert {b.hash: n for n, b in enumerate(manager.blocks) if b.hash is not None} == manager._cached
    assert not set(of.running) & set(of.waiting)
    for one in known:
        places = (one in of.running) + (one in of.waiting)
        assert places == (one.status.value != "ended"), one.status
        assert one.num_computed_tokens <= one.num_tokens
        assert len(one.block_table) * 16 >= one.num_computed_tokens
