"""The model beneath the engine: right logits, right ids, an honest fingerprint."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine import model_runner
from engine.batch import Batch
from engine.detokenizer import Detokenizer
from engine.model import Llama
from engine.model_runner import ModelRunner, rows_are_invariant
from engine.runner import Sampled
from engine.sequence import Chunk, Sequence
from engine.transcript import Transcript
from engine.weights import load_weights
from schemas.events import Sampling
from schemas.ids import ReplyId
from schemas.tokenizer import ChatTokenizer, PromptTurn
from tests.tiny_llama import write_tiny_llama
from tests.unit.engine.dense_llama import dense_logits
from tests.unit.engine.generating import Generation, engine, generate, run

GREEDY = Sampling(24, temperature=0)


@pytest.fixture(scope="module")
def runner(tiny: Path) -> ModelRunner:
    return ModelRunner.load(tiny, 64)


@pytest.fixture(scope="module")
def chat(smollm2: Path) -> ModelRunner:
    return ModelRunner.load(smollm2, 64, ChatTokenizer.load(smollm2).eos_ids)


def ask(tokenizer: ChatTokenizer, text: str) -> tuple[int, ...]:
    system = PromptTurn("system", tokenizer.encode(tokenizer.system))
    return tokenizer.prompt([system, PromptTurn("user", tokenizer.encode(text))])


def test_logits_are_those_of_a_plain_llama(tiny: Path) -> None:
    model, ids = Llama(load_weights(tiny)), [3 + n * 7 % 250 for n in range(150)]
    expected = dense_logits(tiny, ids)
    cache, sequence = model.new_cache(10), Sequence(ReplyId("r"), 1, tuple(ids), Sampling(1))
    sequence.block_table += [7, 2, 9, 0, 1, 3, 8, 4, 6, 5]
    for n in range(1, 151):
        sequence.prompt = tuple(ids[:n])
        with torch.inference_mode():
            [logits] = model(Batch.of([Chunk(sequence, 1)], model.device), cache)
        sequence.num_computed_tokens = n
        torch.testing.assert_close(logits, expected[n - 1].float(), atol=1e-3, rtol=0)


def test_greedy_ids_are_those_of_a_plain_llama(tiny: Path, runner: ModelRunner) -> None:
    prompt = tuple(range(3, 43))
    [said] = generate(runner, Generation(prompt, GREEDY))
    expected = dense_logits(tiny, [*prompt, *said])[len(prompt) - 1 : -1].argmax(-1)
    assert said == expected.tolist()


def test_the_fingerprint_tells_weights_and_dtypes_apart(tiny: Path, tmp_path: Path, runner: ModelRunner) -> None:
    assert ModelRunner.load(tiny, 8).fingerprint == runner.fingerprint
    other_weights = ModelRunner.load(write_tiny_llama(tmp_path, seed=1), 8)
    other_dtype = ModelRunner.load(tiny, 8, dtype=torch.bfloat16)
    assert len({runner.fingerprint, other_weights.fingerprint, other_dtype.fingerprint}) == 3


def test_the_probe_finds_rows_that_depend_on_their_batch(
    tiny: Path, runner: ModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runner.fingerprint.endswith("/invariant")

    class Varying(Llama):
        def __call__(self, batch: Batch, cache: object) -> torch.Tensor:
            return super().__call__(batch, cache) * (1 + len(batch.token_ids) * 1e-6)

    assert not rows_are_invariant(Varying(load_weights(tiny)))
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


def test_the_chat_model_knows_the_capital_of_france(smollm2: Path, chat: ModelRunner) -> None:
    tokenizer = ChatTokenizer.load(smollm2)
    [said] = generate(chat, Generation(ask(tokenizer, "What is the capital of France?"), GREEDY))
    sequence = Sequence(ReplyId("r"), 1, (1,), GREEDY)
    transcript, text = Transcript(sequence, Detokenizer(tokenizer.piece), tokenizer.eos_ids), ""
    while transcript.finish_reason is None:
        text += "".join(token.text for token in transcript.take(Sampled(said.pop(0))).tokens)
    assert (text, transcript.finish_reason) == ("The capital of France is Paris.", "stop")


def test_the_chat_model_goes_on_unchanged_after_a_cut_among_others(smollm2: Path, chat: ModelRunner) -> None:
    tokenizer, sampling = ChatTokenizer.load(smollm2), Sampling(9, temperature=1.0, seed=11)
    prompt, other = (ask(tokenizer, text) for text in ("Tell me a story about a lighthouse. " * 9, "Hello!"))
    [unbroken] = generate(chat, Generation(prompt, sampling))
    again = [Generation(prompt, sampling, tuple(unbroken[:cut])) for cut in (1, 6)]
    assert generate(chat, *again, Generation(other, sampling), step_tokens=50)[:2] == [unbroken, unbroken]
