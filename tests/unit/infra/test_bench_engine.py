"""The engine's benchmark counts right; how fast anything is, no test says."""

import pytest

from engine.engine import Engine
from engine.scheduler import Limits
from engine.scripted import ScriptedRunner
from infra.bench_engine import Continued, Mix, Workload, measure, run, time_to_first_token
from schemas.tokenizer import ChatTokenizer
from tests.tiny_tokenizer import write_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return ChatTokenizer.load(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def test_all_tokens_come_and_the_shared_prefix_is_found(tokenizer: ChatTokenizer) -> None:
    told: list[int] = []
    engine = Engine(ScriptedRunner(tokenizer), Limits(max_running=8))
    figures = measure(engine, Workload(4, output=5), tokenizer.vocabulary, told.append)
    assert (told[-1], figures.requests, figures.preemptions) == (20, 4, 0)
    assert figures.hit_rate == 3 * 256 / (4 * 320)
    assert 0 < figures.first_token[0] <= figures.first_token[1]


def test_two_workloads_have_nothing_in_common(tokenizer: ChatTokenizer) -> None:
    engine = Engine(ScriptedRunner(tokenizer), Limits())
    rates = [measure(engine, Workload(1, output=n), tokenizer.vocabulary, lambda _: None).hit_rate for n in (2, 3)]
    assert rates == [0, 0]


def test_a_mix_is_drawn_alike_each_time_and_runs_to_its_end(tokenizer: ChatTokenizer) -> None:
    first, second = (Mix(9).arrivals(tokenizer.vocabulary) for _ in range(2))
    assert [(at, one.prompt, one.sampling) for at, one in first] == [
        (at, one.prompt, one.sampling) for at, one in second
    ]
    figures = run(Engine(ScriptedRunner(tokenizer), Limits(max_running=4)), first, lambda _: None)
    assert all(one.position == one.sampling.max_tokens for _, one in first)
    assert figures.hit_rate > 0.2


def test_the_next_turn_of_a_long_conversation_finds_it_cached(tokenizer: ChatTokenizer) -> None:
    engine = Engine(ScriptedRunner(tokenizer), Limits())
    told: list[int] = []
    assert min(time_to_first_token(engine, Continued(320, 30), tokenizer.vocabulary, told.append)) > 0
    assert told == [1, 2, 3]
    assert (engine.totals.prompt_tokens, engine.totals.cached_tokens) == (351 + 320 + 350, 320)
