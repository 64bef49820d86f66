"""The real model behind a real stack: it answers, and remembers what was said before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.client import Client, data_of, event_of, text_of
from tests.stack import Stack

GREEDY = {"temperature": 0, "max_tokens": 30}


@pytest.fixture(scope="module")
def greta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with (
        Stack(tmp_path_factory.mktemp("model"), {"LANEWAY_REPLICA": "model"}, ("greta",)) as running,
        Client(running, "greta") as client,
    ):
        yield client


def test_the_model_knows_the_capital_of_france(greta: Client) -> None:
    frames = greta.follow(greta.say("france", "What is the capital of France?", **GREEDY))
    assert text_of(frames) == "The capital of France is Paris."
    assert (event_of(frames[-1]), data_of(frames[-1])["finish_reason"]) == ("finished", "stop")


def test_the_model_remembers_the_turn_before(greta: Client) -> None:
    greta.follow(greta.say("remembered", "What is the capital of France?", **GREEDY))
    frames = greta.follow(greta.say("remembered", "And of Germany?", edge=1, **GREEDY))
    assert text_of(frames) == "The capital of Germany is Berlin."
    alone = greta.follow(greta.say("unremembered", "And of Germany?", edge=1, **GREEDY))
    assert text_of(alone) != text_of(frames)
