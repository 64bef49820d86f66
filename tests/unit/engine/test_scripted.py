"""The runner without a model."""

import subprocess
import sys

import pytest

from engine.scripted import ScriptedRunner
from engine.sequence import Chunk, Sequence
from schemas.events import Sampling
from schemas.ids import ReplyId
from schemas.tokenizer import ChatTokenizer, PromptTurn


def ask(tokenizer: ChatTokenizer, *texts: str) -> tuple[int, ...]:
    return tokenizer.prompt([PromptTurn("user", tokenizer.encode(text)) for text in texts])


def reply(runner: ScriptedRunner, prompt: tuple[int, ...], accepted: tuple[int, ...] = ()) -> list[int]:
    sequence = Sequence(ReplyId("r"), 1, prompt, Sampling(100), accepted)
    for _ in range(12 - len(accepted)):
        sequence.output += step(runner, sequence)
    return sequence.output


def step(runner: ScriptedRunner, *sequences: Sequence) -> list[int]:
    return [sampled.token_id for sampled in runner.compute([Chunk(one, one.num_tokens) for one in sequences])]


def test_the_last_user_message_is_said_again(tiny_tokenizer: ChatTokenizer) -> None:
    said = reply(ScriptedRunner(tiny_tokenizer), ask(tiny_tokenizer, "first", "second"))
    assert tuple(said[:6]) == tiny_tokenizer.encode("second")
    assert set(said[6:]) == tiny_tokenizer.eos_ids


@pytest.mark.parametrize("cut", range(9))
def test_a_continued_script_goes_on_where_it_was_cut(tiny_tokenizer: ChatTokenizer, cut: int) -> None:
    prompt = ask(tiny_tokenizer, "whatever")
    unbroken = reply(ScriptedRunner(tiny_tokenizer), prompt)
    assert reply(ScriptedRunner(tiny_tokenizer), prompt, tuple(unbroken[:cut])) == unbroken


def test_each_step_calls_the_hook_first(tiny_tokenizer: ChatTokenizer) -> None:
    seen: list[list[int]] = []
    hooked = ScriptedRunner(
        tiny_tokenizer, lambda prompt: prompt[:2], lambda running: seen.append([one.position for one in running])
    )
    sequences = [Sequence(ReplyId(name), 1, (5, 6, 7), Sampling(9)) for name in "ab"]
    assert step(hooked, *sequences) == [5, 5]
    sequences[0].output.append(5)
    assert step(hooked, *sequences) == [6, 5]
    assert seen == [[0, 0], [1, 0]]


def test_a_chunk_that_ends_before_the_prompt_does_samples_nothing(tiny_tokenizer: ChatTokenizer) -> None:
    sequence = Sequence(ReplyId("r"), 1, (5, 6, 7), Sampling(9))
    assert ScriptedRunner(tiny_tokenizer).compute([Chunk(sequence, 2)]) == []


def test_nothing_around_a_model_imports_torch() -> None:
    modules = "engine.scripted, engine.transcript, engine.detokenizer, engine.engine, schemas.tokenizer"
    program = f"import sys, {modules}; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
