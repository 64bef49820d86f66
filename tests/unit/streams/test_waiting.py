"""A store that cannot be used at the start: history waits for it, says so, and keeps nobody else from running."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from streams.runtime.main import first_answer
from topics.errors import Unavailable


class Opening:
    """Answers at the third time; `cell` is asked each time whether it is known that somebody waits."""

    def __init__(self) -> None:
        self.cell: Any = SimpleNamespace(waiting=threading.Event(), stopping=SimpleNamespace(wait=lambda _: False))
        self.seen: list[bool] = []

    def __call__(self) -> str:
        self.seen.append(self.cell.waiting.is_set())
        if len(self.seen) < 3:
            raise Unavailable("it is damaged")
        return "its name"


def test_it_is_asked_until_it_answers_and_that_is_seen_meanwhile() -> None:
    store = Opening()
    assert first_answer(store, store.cell) == "its name"
    assert (store.seen, store.cell.waiting.is_set()) == ([False, True, True], False)


def test_whoever_is_told_to_stop_waits_no_longer() -> None:
    store = Opening()
    store.cell.stopping = SimpleNamespace(wait=lambda _: True)
    with pytest.raises(Unavailable, match="it is damaged"):
        first_answer(store, store.cell)
