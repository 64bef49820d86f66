"""How far the store is: by what the stage that saves has committed, and when the log's records came."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from topics.log import Append, Place, Position
from topics.memory import MemoryLog
from topics.memory_group import MemoryGroupConsumer
from topics.store.contract import SAVED_BY
from topics.store.progress import AGAIN_AFTER_MS, AHEAD_MS, Progress

TURNS = Place("turns", 0)
T0 = 1_700_000_000_000
HOUR = 3_600_000


class Saver:
    """A log with four records, one an hour, and who saves them."""

    def __init__(self) -> None:
        self.now_ms = T0
        self.log = MemoryLog({"turns": 1}, lambda: self.now_ms)
        for _ in range(4):
            self.say()
            self.now_ms += HOUR
        self._member: MemoryGroupConsumer | None = None

    def say(self) -> None:
        self.log.producer().send(Append(TURNS, b"", b""))

    def saves(self, offset: int) -> None:
        self._member = self._member or self.log.group(SAVED_BY, ["turns"], self, "0")
        self._member.poll(1, 0.0)
        self._member.commit({TURNS: Position(offset)})

    def assigned(self, places: Collection[Place]) -> Mapping[Place, int]:
        return dict.fromkeys(places, 0)

    def revoked(self, places: Collection[Place]) -> None: ...

    def lost(self, places: Collection[Place]) -> None: ...


@pytest.fixture
def saver() -> Saver:
    return Saver()


def test_what_is_not_committed_is_not_saved(saver: Saver) -> None:
    progress = Progress(saver.log)
    assert progress.end(TURNS) == 4
    assert not progress.reached(TURNS, 4)
    saver.saves(3)
    assert not progress.reached(TURNS, 4)
    saver.saves(4)
    assert progress.reached(TURNS, 4)


def test_of_a_time_it_has_all_whose_records_before_it_are_saved(saver: Saver) -> None:
    saver.saves(2)
    assert Progress(saver.log).has_all_before(TURNS, T0 + 2 * HOUR - AHEAD_MS)
    assert not Progress(saver.log).has_all_before(TURNS, T0 + 2 * HOUR)
    assert not Progress(saver.log).has_all_before(TURNS, T0 + 9 * HOUR)
    saver.saves(4)
    assert Progress(saver.log).has_all_before(TURNS, T0 + 9 * HOUR)


def test_where_nothing_is_to_be_saved_all_is_saved(saver: Saver) -> None:
    saver.log.delete_before(TURNS, 4)
    progress = Progress(saver.log)
    assert progress.has_all_before(TURNS, T0 + 9 * HOUR) and progress.reached(TURNS, progress.end(TURNS))


def test_an_answer_holds_for_a_while_a_no_for_a_second(saver: Saver) -> None:
    progress, late = Progress(saver.log), T0 + 9 * HOUR
    assert not progress.has_all_before(TURNS, late)
    saver.saves(4)
    assert not progress.has_all_before(TURNS, late + AGAIN_AFTER_MS - 1)
    assert progress.has_all_before(TURNS, late + AGAIN_AFTER_MS)
    saver.say()
    assert progress.has_all_before(TURNS, late + AGAIN_AFTER_MS + AHEAD_MS)
    assert not progress.has_all_before(TURNS, late + AGAIN_AFTER_MS + AHEAD_MS + 1)
