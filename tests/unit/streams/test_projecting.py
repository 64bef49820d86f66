"""A store that is away: history holds what it has read, commits none of it, and goes on where it was."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from schemas.events import Turn, TurnSaved
from schemas.ids import ConversationId, MessageId, ReplyId, UserId
from streams.history import History
from streams.runtime.projecting import AGAIN_AFTER_S
from streams.runtime.runner import COMMIT_EVERY_S, Runner
from streams.stage import Message
from tests.unit.streams.cells import Cell, Crash
from tests.unit.streams.staged import SIZES
from topics.catalog import TURNS
from topics.errors import Unavailable
from topics.log import Place, Position
from topics.store import sqlite
from topics.store.contract import SavedAt, Store
from topics.store.sqlite import SqliteStore

PLACE = Place(TURNS, 0)


class Away:
    """A projection that says no until it is `back`."""

    def __init__(self) -> None:
        self.back, self.asked = False, 0
        self.saved: list[int] = []

    def __call__(self, messages: Sequence[Message]) -> None:
        self.asked += 1
        if not self.back:
            raise Unavailable("store: the disk is full")
        self.saved += [message.offset for message in messages]


@pytest.fixture
def cell() -> Cell:
    return Cell(SIZES)


def say(cell: Cell, count: int, text: str = "hello", first: int = 0) -> None:
    for n in range(first, first + count):
        turn = Turn(MessageId(f"u-{n}"), None, "user", text, b"", "tokenizer", "complete")
        cell.write(cell.routes.turn(TurnSaved(UserId("ada"), ConversationId("c"), turn, ReplyId("r"), "m", n)))


def committed(runner: Runner) -> Position | None:
    return runner._consumer.committed([PLACE]).get(PLACE)


def run(runner: Runner, seconds: float, start: float = 100.0) -> None:
    for n in range(int(seconds / COMMIT_EVERY_S) + 1):
        runner.step(start + n * COMMIT_EVERY_S)


def test_what_cannot_be_saved_is_neither_committed_nor_lost(cell: Cell) -> None:
    store = Away()
    say(cell, 3)
    runner = cell.runner(History(), project=store)
    run(runner, 3.0)
    assert committed(runner) in (None, Position(0))
    assert runner._shell.watch.missing() == [": holds what it has read: store: the disk is full"]
    store.back = True
    run(runner, 3.0, start=200.0)
    assert (store.saved, committed(runner)) == ([0, 1, 2], Position(3))
    assert runner._shell.watch.missing() == []


def test_a_store_that_is_away_is_asked_now_and_then_and_no_more_is_read(cell: Cell) -> None:
    store = Away()
    say(cell, 2)
    runner = cell.runner(History(), project=store)
    run(runner, 10 * AGAIN_AFTER_S)
    assert 8 <= store.asked <= 11
    say(cell, 5)
    assert runner.step(200.0) == 0
    store.back = True
    run(runner, 3.0, start=201.0)
    assert store.saved == list(range(7))


def test_who_loses_its_partitions_forgets_what_it_held(cell: Cell) -> None:
    store = Away()
    say(cell, 2)
    first = cell.runner(History(), instance="one", project=store)
    run(first, 1.0)
    first.close()
    store.back = True
    second = cell.runner(History(), instance="two", project=store)
    run(second, 1.0)
    assert (store.saved, committed(second)) == ([0, 1], Position(2))


def test_who_gets_its_partitions_back_after_it_held_reads_on(cell: Cell) -> None:
    store = Away()
    say(cell, 2)
    first = cell.runner(History(), instance="one", project=store)
    run(first, 1.0)
    second = cell.runner(History(), instance="another", project=store)
    for n in range(4):
        first.step(150.0 + n)
        second.step(150.0 + n)
    second.close()
    store.back = True
    run(first, 3.0, start=200.0)
    assert (store.saved, committed(first)) == ([0, 1], Position(2))


Mend = Callable[[], None]


def locked(store: SqliteStore, path: Path) -> Mend:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other.close


def full(store: SqliteStore, path: Path) -> Mend:
    store._connection.execute("PRAGMA max_page_count = 20")
    return lambda: store._connection.execute("PRAGMA max_page_count = 100000")  # type: ignore[return-value]


def saving(store: SqliteStore) -> Callable[[Sequence[Message]], None]:
    return lambda messages: store.save(SavedAt(message.offset, message.event) for message in messages)


@pytest.mark.parametrize(("fault", "said"), [(locked, "database is locked"), (full, "database or disk is full")])
def test_a_file_that_is_locked_or_full_is_told_and_loses_nothing(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[SqliteStore, Path], Mend], said: str
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.01)
    path = tmp_path / "store.sqlite"
    with closing(SqliteStore(path)) as store:
        runner = cell.runner(History(), project=saving(store))
        mend = fault(store, path)
        say(cell, 3, "x" * 200_000)
        run(runner, 3.0)
        [missing] = runner._shell.watch.missing()
        assert said in missing and str(path) in missing and committed(runner) in (None, Position(0))
        mend()
        run(runner, 3.0, start=200.0)
        assert len(held(store)) == 3 and committed(runner) == Position(3)


def test_a_damaged_file_is_told_and_one_that_begins_anew_has_all_of_it(cell: Cell, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    say(cell, 2, "x" * 3000)
    with closing(SqliteStore(path)) as store:
        runner = cell.runner(History(), project=saving(store))
        run(runner, 1.0)
        store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        whole = path.read_bytes()
        path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
        store._connection.execute("PRAGMA shrink_memory")
        say(cell, 2, first=2)
        run(runner, 3.0, start=200.0)
        assert "it is damaged: stop Laneway, move it away" in runner._shell.watch.missing()[0]
        assert committed(runner) == Position(2)
        runner.close()
    for file in tmp_path.iterdir():
        file.rename(file.with_suffix(".damaged"))
    with closing(SqliteStore(path)) as store:
        run(cell.runner(History(store.identity()), project=saving(store)), 1.0)
        assert held(store) == [f"u-{n}" for n in range(4)]


def held(store: Store) -> list[str]:
    return [saved.turn.message for saved in store.messages(UserId("ada"), ConversationId("c"), 10)]


def test_a_store_that_is_built_anew_is_built_whole_though_that_is_cut_off(cell: Cell) -> None:
    say(cell, 5)
    run(cell.runner(History("the one before"), project=list), 1.0)
    store = Away()

    def dies(messages: Sequence[Message]) -> None:
        store.saved += [message.offset for message in messages[:2]]
        raise Crash("after a part")

    store.back = True
    with pytest.raises(Crash):
        run(cell.runner(History("this one"), project=dies), 1.0)
    run(cell.runner(History("this one"), project=store), 1.0)
    assert sorted({*store.saved}) == [0, 1, 2, 3, 4]


def test_a_store_that_was_left_and_is_taken_up_again_is_built_anew(cell: Cell) -> None:
    """What was deleted meanwhile would be there again, and what was said lacking."""
    one, other = Away(), Away()
    one.back = other.back = True
    for store, name in ((one, "one"), (other, "other"), (one, "one"), (one, "one")):
        say(cell, 1)
        runner = cell.runner(History(name), project=store)
        run(runner, 1.0)
        runner.close()
    assert (one.saved, other.saved) == ([0, 0, 1, 2, 3], [0, 1])
