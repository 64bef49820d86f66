"""The engine's benchmark counts right; how fast anything is, no test says."""

import pytest

from engine.engine import Engine
from engine.scheduler import Limits
from engine.scripted import ScriptedRunner
from infra.bench_engine import Workload, measure
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
