"""What only the embedded store can get wrong: its file, other processes on it, other versions of it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from schemas.events import Turn, TurnSaved
from schemas.ids import ConversationId, MessageId, ReplyId, UserId
from topics.errors import Unavailable
from topics.store import sqlite
from topics.store.contract import SavedAt
from topics.store.sqlite import SCHEMA_VERSION, SqliteStore

ADA, C1 = UserId("ada"), ConversationId("c1")

WRITER = """
import sys
from pathlib import Path
from tests.unit.topics.test_sqlite_store import question
from topics.store.sqlite import SqliteStore

store = SqliteStore(Path(sys.argv[1]))
for n in range(int(sys.argv[2]), int(sys.argv[3])):
    store.save([question(n)])
store.close()
"""


def question(n: int, text: str = "hello") -> SavedAt:
    turn = Turn(MessageId(f"u-{n}"), None, "user", text, b"", "tokenizer", "complete")
    return SavedAt(n, TurnSaved(ADA, C1, turn, ReplyId(f"r-{n}"), "model", created_ms=n))


def test_processes_share_a_file_that_none_of_them_made_first(tmp_path: Path) -> None:
    path, command = tmp_path / "store.db", [sys.executable, "-c", WRITER]
    ranges = [(0, 40), (20, 60), (40, 80)]
    writers = [subprocess.Popen([*command, str(path), str(first), str(last)]) for first, last in ranges]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    with closing(SqliteStore(path)) as store:
        assert [saved.turn.message for saved in store.messages(ADA, C1, 100)] == [f"u-{n}" for n in range(80)]


def test_what_was_saved_is_there_for_the_next_process(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        store.save([question(0)])
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        assert store.messages(ADA, C1, 10) == (question(0).saved,)


def test_a_save_that_fails_leaves_nothing(tmp_path: Path) -> None:
    too_long = SavedAt(2**63, question(1).saved)
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        with pytest.raises(OverflowError):
            store.save([question(0), too_long])
        assert store.messages(ADA, C1, 10) == ()
        store.save([question(0)])
        assert len(store.messages(ADA, C1, 10)) == 1


def test_a_newer_schema_is_refused_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(Unavailable, match=rf"store\.db: written with schema version {SCHEMA_VERSION + 1}"):
        SqliteStore(path)


def test_a_locked_file_is_unavailable_and_then_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.01)
    path = tmp_path / "store.db"
    with closing(SqliteStore(path)) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match=r"store\.db: database is locked"):
            store.save([question(0)])
        assert store.messages(ADA, C1, 10) == ()
        other.execute("ROLLBACK")
        store.save([question(0)])
        assert len(store.messages(ADA, C1, 10)) == 1


def make_garbage(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


@pytest.mark.parametrize(("make", "reason"), [(make_garbage, "file is not a database"), (Path.mkdir, "unable to open")])
def test_what_is_no_database_is_unavailable(tmp_path: Path, make: Callable[[Path], None], reason: str) -> None:
    make(tmp_path / "store.db")
    with pytest.raises(Unavailable, match=rf"store\.db: {reason}"):
        SqliteStore(tmp_path / "store.db")


def test_a_full_disk_is_unavailable_and_loses_nothing(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        store.save([question(0)])
        store._connection.execute("PRAGMA max_page_count = 20")
        with pytest.raises(Unavailable, match="full"):
            store.save([question(1, "x" * 500_000)])
        assert len(store.messages(ADA, C1, 10)) == 1
