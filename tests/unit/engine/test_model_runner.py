"""The model beneath the engine: an honest fingerprint, log probabilities. Its logits are tested in tests/model."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine import model_runner
from engine.batch import Batch
from engine.model import Llama
from engine.model_runner import ModelRunner, rows_are_invariant
from engine.ops.contract import Ops
from engine.runner import Sampled
from engine.sequence import Chunk, Sequence
from engine.weights import load_weights
from schemas.events import Sampling
from schemas.ids import ReplyId
from tests.tiny_llama import write_tiny_llama
from tests.unit.engine.generating import Generation, engine, run


@pytest.fixture(scope="module")
def runner(tiny: Path, ops: Ops, dtype: torch.dtype) -> ModelRunner:
    return ModelRunner.load(tiny, 64, dtype=dtype, ops=ops)


@pytest.fixture(scope="module")
def reference(tiny: Path) -> ModelRunner:
    return ModelRunner.load(tiny, 64)


def test_the_fingerprint_tells_weights_dtypes_and_kernels_apart(
    tiny: Path, tmp_path: Path, reference: ModelRunner, cpu_ops: Ops
) -> None:
    assert ModelRunner.load(tiny, 8).fingerprint == reference.fingerprint
    other_weights = ModelRunner.load(write_tiny_llama(tmp_path, seed=1), 8)
    other_dtype = ModelRunner.load(tiny, 8, dtype=torch.bfloat16)
    other_ops = ModelRunner.load(tiny, 8, ops=cpu_ops)
    assert len({one.fingerprint for one in (reference, other_weights, other_dtype, other_ops)}) == 4
    assert "/reference-torch/" in reference.fingerprint and f"/{cpu_ops.name}-tiled/" in other_ops.fingerprint


def test_the_probe_finds_rows_that_depend_on_their_batch(
    tiny: Path, runner: ModelRunner, ops: Ops, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runner.fingerprint.endswith("/invariant")

    class Varying(Llama):
        def __call__(self, batch: Batch, cache: object) -> torch.Tensor:
            return super().__call__(batch, cache) * (1 + len(batch.token_ids) * 1e-6)

    assert not rows_are_invariant(Varying(load_weights(tiny), ops))
    monkeypatch.setattr(model_runner, "Llama", Varying)
    assert ModelRunner.load(tiny, 8).fingerprint.endswith("/variant")


def test_log_probabilities_come_with_a_token_when_they_are_asked_for(runner: ModelRunner) -> None:
    sequence = Sequence(ReplyId("r"), 1, (5, 6, 7), Sampling(1, temperature=0, top_logprobs=3), block_table=[0])
    [sampled] = runner.compute([Chunk(sequence, 3)])
    assert sampled.logprobs is not None
    assert sampled.logprobs.top[0] == (sampled.token_id, sampled.logprobs.chosen)
    assert [value < 0 for _, value in sampled.logprobs.top] == [True] * 3


def test_log_probabilities_of_a_continued_reply_are_those_of_the_unbroken_one(runner: ModelRunner) -> None:
    asked = Generation(tuple(range(3, 70)), Sampling(12, temperature=0.9, seed=5, top_logprobs=4))
    unbroken: list[Sampled] = []
    run(engine(runner), asked, told=lambda _, one: unbroken.append(one))
    for cut in (1, 7):
        rest: list[Sampled] = []
        continued = replace(asked, accepted=tuple(one.token_id for one in unbroken[:cut]))
        run(engine(runner, step_tokens=20), continued, told=lambda _, one, rest=rest: rest.append(one))
        assert rest == unbroken[cut:]
