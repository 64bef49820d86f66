"""The chat model answers, and goes on after a cut as if there had been none."""

from dataclasses import replace
from pathlib import Path

import pytest

from engine.detokenizer import Detokenizer
from engine.model_runner import ModelRunner
from engine.ops import choose
from engine.runner import Sampled
from engine.sequence import Sequence
from engine.transcript import Transcript
from schemas.events import Sampling
from schemas.ids import ReplyId
from schemas.tokenizer import ChatTokenizer, PromptTurn
from tests.unit.engine.generating import Generation, generate

GREEDY = Sampling(10, temperature=0)


def ask(tokenizer: ChatTokenizer, text: str) -> tuple[int, ...]:
    system = PromptTurn("system", tokenizer.encode(tokenizer.system))
    return tokenizer.prompt([system, PromptTurn("user", tokenizer.encode(text))])


def test_the_chat_model_knows_the_capital_of_france(chat: ModelRunner, tokenizer: ChatTokenizer) -> None:
    [said] = generate(chat, Generation(ask(tokenizer, "What is the capital of France?"), GREEDY))
    sequence = Sequence(ReplyId("r"), 1, (1,), GREEDY)
    transcript, text = Transcript(sequence, Detokenizer(tokenizer.piece), tokenizer.eos_ids), ""
    while transcript.finish_reason is None:
        text += "".join(token.text for token in transcript.take(Sampled(said.pop(0))).tokens)
    assert (text, transcript.finish_reason) == ("The capital of France is Paris.", "stop")


def test_the_chat_model_goes_on_unchanged_after_a_cut_among_others(chat: ModelRunner, tokenizer: ChatTokenizer) -> None:
    sampling = Sampling(6, temperature=1.0, seed=11)
    prompt, other = (ask(tokenizer, text) for text in ("Tell me a story about a lighthouse. " * 3, "Hello!"))
    [unbroken] = generate(chat, Generation(prompt, sampling))
    again = [Generation(prompt, sampling, tuple(unbroken[:cut])) for cut in (1, 4)]
    assert generate(chat, *again, Generation(other, sampling), step_tokens=50)[:2] == [unbroken, unbroken]


@pytest.fixture(scope="module", params=[("cpu", "bfloat16"), ("cpu", "int8"), ("reference", "bfloat16")], ids=" ".join)
def held_otherwise(request: pytest.FixtureRequest, smollm2: Path, tokenizer: ChatTokenizer) -> ModelRunner:
    """The chat model, with its weights in what a replica may be told to hold them in, beside float32."""
    ops, dtype = request.param
    return ModelRunner.load(smollm2, 400, tokenizer.eos_ids, choose.dtype(dtype), choose.ops(ops))


def test_in_every_dtype_a_row_of_the_chat_model_does_not_depend_on_the_others(
    held_otherwise: ModelRunner, tokenizer: ChatTokenizer
) -> None:
    assert held_otherwise.fingerprint.endswith("/invariant")
    samplings = Sampling(6, temperature=0, ignore_eos=True), Sampling(6, temperature=1.0, seed=11, ignore_eos=True)
    texts = "Tell me a story about a lighthouse. " * 4, "Hello!"
    asked = [Generation(ask(tokenizer, text), sampling) for text in texts for sampling in samplings]
    alone = [generate(held_otherwise, one)[0] for one in asked]
    assert generate(held_otherwise, *asked) == alone
    cut = [replace(one, accepted=tuple(said[:3])) for one, said in zip(asked, alone, strict=True)]
    assert generate(held_otherwise, *asked[1:], *cut, step_tokens=50) == [*alone[1:], *alone]
