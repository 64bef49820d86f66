"""How far the store is: by what the stage that saves has committed, and when the log's records came."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.topics.commits import commit
from topics.log import Append, Place
from topics.memory import MemoryLog
from topics.store.contract import SAVED_BY
from topics.store.progress import AGAIN_AFTER_MS, AHEAD_MS, Progress

TURNS = Place("turns", 0)
T0 = 1_700_000_000_000
HOUR = 3_600_000


class Saver:
    """A log with four records, one an hour, and who saves them into a store."""

    def __init__(self) -> None:
        self.now_ms = T0
        self.log = MemoryLog({"turns": 1}, lambda: self.now_ms)
        self.store: Any = SimpleNamespace(identity=lambda: "this one")
        for _ in range(4):
            self.say()
            self.now_ms += HOUR

    def say(self) -> None:
        self.log.producer().send(Append(TURNS, b"", b""))

    def saves(self, offset: int, into: str = "this one") -> None:
        commit(self.log, SAVED_BY, TURNS, offset, into)

    def progress(self) -> Progress:
        return Progress(self.log, self.store)


@pytest.fixture
def saver() -> Saver:
    return Saver()


def test_what_is_not_committed_is_not_saved(saver: Saver) -> None:
    progress = saver.progress()
    assert progress.end(TURNS) == 4
    assert not progress.reached(TURNS, 4)
    saver.saves(3)
    assert not progress.reached(TURNS, 4)
    saver.saves(4)
    assert progress.reached(TURNS, 4)


def test_of_a_time_it_has_all_whose_records_before_it_are_saved(saver: Saver) -> None:
    saver.saves(2)
    assert saver.progress().has_all_before(TURNS, T0 + 2 * HOUR - AHEAD_MS)
    assert not saver.progress().has_all_before(TURNS, T0 + 2 * HOUR)
    assert not saver.progress().has_all_before(TURNS, T0 + 9 * HOUR)
    saver.saves(4)
    assert saver.progress().has_all_before(TURNS, T0 + 9 * HOUR)


@pytest.mark.parametrize("committed", [None, 0, 4])
def test_what_has_expired_is_not_waited_for(saver: Saver, committed: int | None) -> None:
    saver.log.delete_before(TURNS, 4)
    if committed is not None:
        saver.saves(committed)
    progress = saver.progress()
    assert progress.has_all_before(TURNS, T0 + 9 * HOUR) and progress.reached(TURNS, progress.end(TURNS))


def test_of_another_store_than_was_saved_into_nothing_is_known(saver: Saver) -> None:
    saver.saves(4, into="another")
    progress = saver.progress()
    assert not progress.has_all_before(TURNS, T0 + 9 * HOUR) and not progress.reached(TURNS, 4)
    saver.saves(1)
    assert progress.reached(TURNS, 1) and not progress.reached(TURNS, 2)


def test_an_answer_holds_for_a_while_a_no_for_a_second(saver: Saver) -> None:
    progress, late = saver.progress(), T0 + 9 * HOUR
    assert not progress.has_all_before(TURNS, late)
    saver.saves(4)
    assert not progress.has_all_before(TURNS, late + AGAIN_AFTER_MS - 1)
    assert progress.has_all_before(TURNS, late + AGAIN_AFTER_MS)
    saver.say()
    assert progress.has_all_before(TURNS, late + AGAIN_AFTER_MS + AHEAD_MS)
    assert not progress.has_all_before(TURNS, late + AGAIN_AFTER_MS + AHEAD_MS + 1)
