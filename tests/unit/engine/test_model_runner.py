"""Exactness: a reply that is cut at any token and computed again elsewhere goes on with the same tokens."""

from pathlib import Path

import pytest
import torch

from engine.detokenizer import Detokenizer
from engine.errors import ContextExceeded
from engine.model_runner import ModelRunner
from engine.runner import Runner
from engine.sequence import Sequence
from engine.transcript import Transcript
from schemas.events import Sampling
from schemas.ids import ReplyId
from schemas.tokenizer import ChatTokenizer, PromptTurn
from tests.tiny_llama import CONTEXT, write_tiny_llama

GREEDY = Sampling(48, temperature=0)
SEEDED = Sampling(48, temperature=1.2, top_p=0.95, top_k=100, seed=2**63 + 5)
PROMPT = tuple(range(3, 43))


def generate(runner: Runner, prompt: tuple[int, ...], sampling: Sampling, accepted: tuple[int, ...] = ()) -> list[int]:
    """All `max_tokens` ids of a reply, whatever they say."""
    sequence = Sequence(ReplyId("r"), 1, prompt, sampling, accepted)
    while sequence.position < sampling.max_tokens:
        sequence.output += runner.step([sequence])
    runner.release(sequence)
    return sequence.output


@pytest.fixture(scope="module")
def runner(tiny: Path) -> ModelRunner:
    return ModelRunner.load(tiny)


@pytest.fixture(scope="module")
def chat(smollm2: Path) -> ModelRunner:
    return ModelRunner.load(smollm2)


def ask(tokenizer: ChatTokenizer, text: str) -> tuple[int, ...]:
    system = PromptTurn("system", tokenizer.encode(tokenizer.system))
    return tokenizer.prompt([system, PromptTurn("user", tokenizer.encode(text))])


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_a_reply_cut_at_any_token_goes_on_unchanged_elsewhere(
    tiny: Path, runner: ModelRunner, sampling: Sampling
) -> None:
    unbroken, elsewhere = generate(runner, PROMPT, sampling), ModelRunner.load(tiny)
    assert len(set(unbroken)) > 10
    for cut in range(len(unbroken)):
        assert generate(elsewhere, PROMPT, sampling, tuple(unbroken[:cut])) == unbroken, cut


def test_the_keys_and_values_of_a_prefill_are_those_of_single_steps(runner: ModelRunner) -> None:
    whole, stepped = (runner._model.new_cache(200) for _ in range(2))
    ids = [3 + n * 7 % 250 for n in range(150)]
    with torch.inference_mode():
        logits = runner._model(ids, 0, whole)
        for n, token_id in enumerate(ids):
            last = runner._model([token_id], n, stepped)
    assert torch.equal(last, logits)
    assert torch.equal(whole.keys, stepped.keys)
    assert torch.equal(whole.values, stepped.values)


def test_neighbours_change_nothing(runner: ModelRunner) -> None:
    prompts = [PROMPT, PROMPT[:7], PROMPT[::-1]]
    together = [Sequence(ReplyId(str(n)), 1, prompt, SEEDED) for n, prompt in enumerate(prompts)]
    for _ in range(SEEDED.max_tokens):
        for sequence, token_id in zip(together, runner.step(together), strict=True):
            sequence.output.append(token_id)
    assert [sequence.output for sequence in together] == [generate(runner, prompt, SEEDED) for prompt in prompts]


def test_a_released_sequence_comes_back_from_its_start(runner: ModelRunner) -> None:
    sequence = Sequence(ReplyId("r"), 1, PROMPT, GREEDY)
    sequence.output += runner.step([sequence])
    runner.release(sequence)
    assert sequence.num_computed_tokens == 0
    sequence.output += runner.step([sequence])
    assert sequence.num_computed_tokens == len(PROMPT) + 1
    assert sequence.output == generate(runner, PROMPT, GREEDY)[:2]


def test_a_reply_that_cannot_fit_is_refused_before_it_costs_anything(runner: ModelRunner) -> None:
    fits = Sequence(ReplyId("fits"), 1, PROMPT, Sampling(CONTEXT - len(PROMPT), temperature=0))
    large = Sequence(ReplyId("large"), 1, PROMPT, Sampling(CONTEXT - len(PROMPT) + 1))
    with pytest.raises(ContextExceeded, match="large: a prompt of 40 and a reply of 473"):
        runner.step([fits, large])
    assert fits.num_computed_tokens == 0


def test_the_fingerprint_tells_weights_and_dtypes_apart(tiny: Path, tmp_path: Path, runner: ModelRunner) -> None:
    assert ModelRunner.load(tiny).fingerprint == runner.fingerprint
    others = [ModelRunner.load(write_tiny_llama(tmp_path, seed=1)), ModelRunner.load(tiny, torch.bfloat16)]
    assert len({runner.fingerprint, *(other.fingerprint for other in others)}) == 3


def test_the_chat_model_knows_the_capital_of_france(smollm2: Path, chat: ModelRunner) -> None:
    tokenizer = ChatTokenizer.load(smollm2)
    sequence = Sequence(ReplyId("r"), 1, ask(tokenizer, "What is the capital of France?"), GREEDY)
    transcript = Transcript(sequence, Detokenizer(tokenizer.piece), tokenizer.eos_ids)
    text = ""
    while transcript.finish_reason is None:
        text += "".join(token.text for token in transcript.take(chat.step([sequence])[0]).tokens)
    assert (text, transcript.finish_reason) == ("The capital of France is Paris.", "stop")


def test_the_chat_model_goes_on_unchanged_after_a_cut(smollm2: Path, chat: ModelRunner) -> None:
    prompt = ask(ChatTokenizer.load(smollm2), "Tell me a story about a lighthouse. " * 9)
    sampling = Sampling(9, temperature=1.0, seed=11)
    unbroken = generate(chat, prompt, sampling)
    for cut in (1, 6):
        assert generate(chat, prompt, sampling, tuple(unbroken[:cut])) == unbroken
