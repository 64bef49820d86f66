"""Batch invariance, bit for bit: a reply's tokens are the same alone, in any mix, and cut and continued elsewhere."""

import gc
import inspect
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.engine import Change, Totals
from engine.model_runner import ModelRunner
from engine.ops.contract import Ops
from engine.runner import Sampled
from engine.scripted import ScriptedRunner
from engine.sequence import Chunk, Sequence
from schemas.events import Sampling
from schemas.ids import ReplyId
from schemas.tokenizer import ChatTokenizer
from tests.unit.engine.generating import Generation, engine, generate, run

ENGINE = Path(inspect.getfile(Sequence)).parent
POINTER = 8
GREEDY = Sampling(40, temperature=0)
SEEDED = Sampling(40, temperature=1.2, top_p=0.95, top_k=100, seed=2**63 + 5)
PENALISED = replace(
    SEEDED, presence_penalty=0.4, frequency_penalty=0.3, repetition_penalty=1.1, min_tokens=9, ignore_eos=True
)
SAMPLINGS = {"greedy": GREEDY, "seeded": SEEDED, "penalised": PENALISED}
SHARED = tuple(3 + n * 7 % 250 for n in range(130))
PROMPTS = [(*SHARED[: 130 - 9 * n], *range(n, n + 1 + 5 * n)) for n in range(12)]


@pytest.fixture(scope="module")
def load(tiny: Path, ops: Ops, dtype: torch.dtype) -> Callable[[int], ModelRunner]:
    return lambda blocks: ModelRunner.load(tiny, blocks, frozenset({2}), dtype, ops)


@pytest.fixture(scope="module")
def runner(load: Callable[[int], ModelRunner]) -> ModelRunner:
    return load(160)


@pytest.fixture(scope="module", params=SAMPLINGS.values(), ids=SAMPLINGS.keys())
def alone(request: pytest.FixtureRequest, runner: ModelRunner) -> dict[Generation, list[int]]:
    """Each reply by itself, its prompt in one chunk, nothing cached."""
    asked = [Generation(p, replace(request.param, seed=request.param.seed ^ n)) for n, p in enumerate(PROMPTS)]
    return {one: generate(runner, one)[0] for one in asked}


def test_in_one_batch(runner: ModelRunner, alone: dict[Generation, list[int]]) -> None:
    assert len({tuple(ids) for ids in alone.values()}) == len(PROMPTS)
    assert generate(runner, *alone) == list(alone.values())


def test_arriving_one_after_the_other(runner: ModelRunner, alone: dict[Generation, list[int]]) -> None:
    staggered = [replace(one, after=5 * n % 31) for n, one in enumerate(alone)]
    assert generate(runner, *staggered, max_running=7) == list(alone.values())


@pytest.mark.parametrize("step_tokens", [5, 17, 64])
def test_with_prompts_computed_in_chunks(
    runner: ModelRunner, alone: dict[Generation, list[int]], step_tokens: int
) -> None:
    assert generate(runner, *list(alone)[:6], step_tokens=step_tokens) == list(alone.values())[:6]


def test_preempted_and_computed_anew(load: Callable[[int], ModelRunner], alone: dict[Generation, list[int]]) -> None:
    sequences = run(engine(load(24), recomputations=99), *alone)
    assert [one.output for one in sequences] == list(alone.values())
    assert sum(one.recomputations for one in sequences) > 3


def test_with_prefixes_found_in_the_cache(runner: ModelRunner, alone: dict[Generation, list[int]]) -> None:
    on = engine(runner)
    run(on, *alone)
    again = run(on, *reversed(alone))
    assert [one.output for one in again] == list(alone.values())[::-1]
    assert all(one.num_cached_tokens >= (len(one.prompt) - 1) // 16 * 16 for one in again)


def test_cut_at_every_token_and_continued_on_a_fresh_engine_in_another_mix(
    load: Callable[[int], ModelRunner], alone: dict[Generation, list[int]]
) -> None:
    elsewhere = load(300)
    [(first, unbroken), *others] = alone.items()
    cuts = [replace(first, accepted=tuple(unbroken[:cut]), after=cut % 5) for cut in range(len(unbroken))]
    mixed = [*cuts, *(one for one, _ in others)]
    expected = [*([unbroken] * len(cuts)), *(ids for _, ids in others)]
    assert generate(elsewhere, *mixed, step_tokens=100, max_running=9) == expected


def test_keys_and_values_of_a_prefill_are_those_of_single_steps(runner: ModelRunner) -> None:
    whole, stepped = (Sequence(ReplyId("r"), 1, SHARED, GREEDY) for _ in range(2))
    whole.block_table, stepped.block_table = list(range(9)), list(range(20, 11, -1))
    runner.compute([Chunk(whole, len(SHARED))])
    for n in range(len(SHARED)):
        stepped.num_computed_tokens = n
        runner.compute([Chunk(stepped, 1)])
    for cache in (runner._cache.keys, runner._cache.values):
        blocks = cache.movedim(cache.shape.index(runner.num_blocks), 0)
        one, two = (blocks[of.block_table[:8]] for of in (whole, stepped))
        assert torch.equal(one, two)


def test_what_was_done_is_counted(tiny_tokenizer: ChatTokenizer) -> None:
    on = engine(ScriptedRunner(tiny_tokenizer, script=lambda _: (5,) * 30, num_blocks=5), recomputations=1)
    prompt = tuple(range(31))
    run(on, Generation(prompt, Sampling(4)), Generation((*prompt, 7), Sampling(4), accepted=(5, 5)))
    assert on.totals == Totals(31 + 34, 16, 4 + 2, 0, 0, 4)
    run(on, *(Generation((n, *prompt), Sampling(16)) for n in (1, 2)))
    assert (on.totals.prompt_tokens, on.totals.preemptions) == (65 + 64, 1)
    assert (on.num_blocks, on.free_blocks, on.totals.generated_tokens) == (5, 5, 6 + 32)


class Broken(Exception):
    pass


def test_a_step_that_fails_counts_for_nothing(tiny_tokenizer: ChatTokenizer) -> None:
    failing = iter([False, True])

    def before(_: list[Sequence]) -> None:
        if next(failing, False):
            raise Broken

    on = engine(ScriptedRunner(tiny_tokenizer, script=lambda _: (5, 6, 7), before_step=before))
    one = Sequence(ReplyId("r"), 1, tuple(range(40)), Sampling(3))
    on.add(one)
    [_, (_, sampled)] = on.step()
    assert isinstance(sampled, Sampled)
    one.output.append(sampled.token_id)
    with pytest.raises(Broken):
        on.step()
    assert (on.num_running, on.num_waiting, on.free_blocks) == (0, 1, 4096)
    assert on.step() == [(one, Change.ADMITTED), (one, Sampled(6))]


def churn(tiny_tokenizer: ChatTokenizer, runner: ScriptedRunner, requests: int) -> int:
    """Bytes held by what the engine allocated (the test process does other things beside it) after so many tiny
    requests, a third of which are aborted before the step that would start them.
    """
    on = engine(runner)
    for n in range(requests):
        one = Sequence(ReplyId(f"r{n}"), 1, (n % 250, *range(20)), Sampling(1))
        on.add(one)
        if n % 3 == 0:
            on.abort(one.reply, 1)
        for sequence, outcome in on.step() if n % 4 == 0 else ():
            if isinstance(outcome, Sampled):
                on.finish(sequence)
    while on.has_work:
        for sequence, outcome in on.step():
            if isinstance(outcome, Sampled):
                on.abort(sequence.reply, sequence.attempt)
    assert on.free_blocks == runner.num_blocks
    gc.collect()
    own = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, f"{ENGINE}/*", all_frames=True)])
    return sum(trace.size for trace in own.traces)


def test_memory_is_flat_over_thousands_of_tiny_requests(tiny_tokenizer: ChatTokenizer) -> None:
    runner = ScriptedRunner(tiny_tokenizer, script=lambda _: (5,), num_blocks=64)
    tracemalloc.start(8)
    try:
        churn(tiny_tokenizer, runner, 300)
        before = churn(tiny_tokenizer, runner, 300)
        assert churn(tiny_tokenizer, runner, 6000) - before < 6000 * POINTER / 2
    finally:
        tracemalloc.stop()
