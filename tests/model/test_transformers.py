"""The engine against Hugging Face transformers: on the same weights, the same logits and the same greedy tokens."""

from pathlib import Path

import pytest
import torch

from engine.batch import Batch
from engine.model import Llama
from engine.model_runner import ModelRunner
from engine.ops.contract import Ops
from engine.sequence import Chunk, Sequence, blocks_for
from engine.weights import Weights, load_weights
from schemas.events import Sampling
from schemas.ids import ReplyId
from schemas.tokenizer import ChatTokenizer, PromptTurn
from tests.model.hugging_face import HuggingFace
from tests.model.test_chat_model import ask
from tests.tiny_llama import write_tiny_llama
from tests.unit.engine.generating import Generation, generate

TOLERANCE = 1e-3
QUESTIONS = (
    "Hi", "Who are you?", "2+2?", "Name a fruit.", "What is the capital of France?", "And of Peru?", "Say yes or no.",
    "Write a haiku.", "What is water?", "Count to five.", "Translate 'cat' to Spanish.", "Why is the sky blue?",
    "Schönen Dank! 東京?", "Fix: def f(: pass", "List three colours.", "Is 7 prime?", "Tell me a joke.",
    "Who wrote Hamlet?", "Spell 'lane'.", "Good night.",
)  # fmt: skip


def chunked_logits(model: Llama, ids: tuple[int, ...], cuts: tuple[int, ...]) -> list[torch.Tensor]:
    """After the prompt's rows up to each cut, computed in chunks over scattered blocks."""
    cache, sequence = model.new_cache(40), Sequence(ReplyId("r"), 1, ids, Sampling(1))
    sequence.block_table += [7 * n % 40 for n in range(blocks_for(len(ids)))]
    found = []
    for cut in cuts:
        sequence.prompt = ids[:cut]
        with torch.inference_mode():
            rows = Batch.of([Chunk(sequence, cut - sequence.num_computed_tokens)], model.device)
            found += list(model(rows, cache))
        sequence.num_computed_tokens = cut
    return found


@pytest.mark.parametrize("seed", [0, 1])
def test_logits_of_a_random_llama(ops: Ops, tmp_path: Path, seed: int) -> None:
    weights = load_weights(write_tiny_llama(tmp_path, seed))
    ids, cuts = tuple(3 + n * 7 % 250 for n in range(200)), (1, 2, 19, 64, 65, 150, *range(151, 201))
    expected = HuggingFace(weights).logits(ids)
    for cut, logits in zip(cuts, chunked_logits(Llama(weights, ops), ids, cuts), strict=True):
        torch.testing.assert_close(logits, expected[cut - 1], atol=TOLERANCE, rtol=0)


def test_greedy_tokens_of_a_random_llama(ops: Ops, tmp_path: Path) -> None:
    weights = load_weights(write_tiny_llama(tmp_path))
    hugging_face = HuggingFace(Weights(weights.config, dict(weights.tensors), weights.digest))
    prompts = [tuple(3 + n * k % 250 for n in range(5 + 9 * k)) for k in range(20)]
    said = generate(ModelRunner(weights, 400, ops=ops), *(Generation(p, Sampling(24, temperature=0)) for p in prompts))
    assert said == [hugging_face.likeliest(prompt, *tokens) for prompt, tokens in zip(prompts, said, strict=True)]


def test_logits_of_the_chat_model(weights: Weights, chat: ModelRunner, tokenizer: ChatTokenizer) -> None:
    ids = ask(tokenizer, QUESTIONS[12])
    cuts = (20, len(ids) - 1, len(ids))
    expected = HuggingFace(weights).logits(ids)
    for cut, logits in zip(cuts, chunked_logits(chat._model, ids, cuts), strict=True):
        torch.testing.assert_close(logits, expected[cut - 1], atol=TOLERANCE, rtol=0)


def test_greedy_tokens_of_the_chat_model(weights: Weights, chat: ModelRunner, tokenizer: ChatTokenizer) -> None:
    prompts = [tokenizer.prompt([PromptTurn("user", tokenizer.encode(question))]) for question in QUESTIONS]
    said = generate(chat, *(Generation(prompt, Sampling(8, temperature=0)) for prompt in prompts), max_running=20)
    hugging_face = HuggingFace(weights)
    assert said == [hugging_face.likeliest(prompt, *tokens) for prompt, tokens in zip(prompts, said, strict=True)]
