"""What only the embedded store can get wrong: its file, other processes on it, other versions of it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from schemas.codec import Codec
from schemas.events import ConversationDeleted, ConversationRenamed, Turn, TurnSaved
from schemas.ids import ConversationId, MessageId, ReplyId, UserId
from topics.errors import Unavailable
from topics.store import sqlite, sqlite_schema
from topics.store.contract import Conversation, SavedAt
from topics.store.sqlite import SCHEMA_VERSION, SqliteStore

CODEC = Codec()
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
        with closing(SqliteStore(path)) as opened_meanwhile:
            assert opened_meanwhile.messages(ADA, C1, 10) == ()
        other.execute("ROLLBACK")
        store.save([question(0)])
        assert len(store.messages(ADA, C1, 10)) == 1


def test_readers_wait_for_no_writer_and_see_the_last_commit(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(SqliteStore(path)) as writer, closing(SqliteStore(path)) as reader:
        writer.save([question(0)])
        with writer._transaction("BEGIN IMMEDIATE"):
            writer._connection.execute("DELETE FROM turns")
            assert reader.messages(ADA, C1, 10) == (question(0).saved,)
        assert reader.messages(ADA, C1, 10) == ()
        assert reader._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def statements() -> dict[str, str]:
    texts = {name: value for name, value in vars(sqlite_schema).items() if name.isupper() and isinstance(value, str)}
    whole = {name: text for name, text in texts.items() if not name.startswith("_") and name != "ANYTHING"}
    return whole | {f"DELETE {n}": text for n, text in enumerate(sqlite_schema.DELETE)}


@pytest.mark.parametrize("name", statements())
def test_no_statement_reads_a_whole_table(tmp_path: Path, name: str) -> None:
    statement = statements()[name]
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        count = next(n for n in range(17) if binds(store, statement, n))
        plan = store._connection.execute(f"EXPLAIN QUERY PLAN {statement}", [None] * count).fetchall()
    steps = [row[3] for row in plan]
    assert not [step for step in steps if step.startswith(("SCAN turns", "SCAN conversations"))], steps
    assert name != "LIST" or steps == [
        "SEARCH conversations USING INDEX conversations_newest (user=? AND (updated_ms,conversation)<(?,?))"
    ]


def binds(store: SqliteStore, statement: str, count: int) -> bool:
    """Whether the statement has so many parameters."""
    try:
        store._connection.execute(f"EXPLAIN {statement}", [None] * count)
    except sqlite3.ProgrammingError:
        return False
    return True


def test_a_file_of_the_first_version_keeps_its_conversations(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as old:
        old.executescript(f"{sqlite_schema.STEPS[0]}; PRAGMA user_version = 1")
        first, second = question(7, "one\ntwo"), question(9)
        for offset, saved in ((first.offset, first.saved), (second.offset, second.saved)):
            assert isinstance(saved, TurnSaved)
            row = (
                ADA,
                C1,
                saved.turn.message,
                saved.reply,
                "user",
                saved.created_ms,
                0,
                offset,
                offset,
                saved.turn.text,
            )
            columns = "user, conversation, message, reply, role, created_ms, tokens, first_offset, newest_offset, title"
            values = (*row, CODEC.encode(saved))
            old.execute(f"INSERT INTO turns ({columns}, record) VALUES ({', '.join('?' * 11)})", values)
        old.commit()
    with closing(SqliteStore(path)) as store:
        assert store.messages(ADA, C1, 10) == (first.saved, second.saved)
        assert store.conversations(ADA, 10) == (Conversation(C1, 7, 9, 2, "one two"),)
        store.save([SavedAt(10, ConversationDeleted(ADA, C1, 7))])
        assert store.messages(ADA, C1, 10) == (second.saved,)


def test_what_was_deleted_is_not_left_in_the_file(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        store.save([question(1, "a secret " * 500), question(2, "kept")])
        store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert b"a secret" in (tmp_path / "store.db").read_bytes()
        store.save([SavedAt(3, ConversationDeleted(ADA, C1, 1))])
        assert b"secret" not in all_bytes(tmp_path)
        assert store.conversations(ADA, 10)[0].title == "kept"


def test_what_a_reader_kept_from_being_wiped_goes_with_the_next_save(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(SqliteStore(path)) as store, closing(sqlite3.connect(path, isolation_level=None)) as reader:
        store.save([question(1, "a secret " * 500)])
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM turns").fetchall()
        store.save([SavedAt(3, ConversationDeleted(ADA, C1, 1))])
        assert b"secret" in all_bytes(tmp_path)
        reader.execute("COMMIT")
        store.save([question(2, "kept")])
        assert b"secret" not in all_bytes(tmp_path)


def all_bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


def make_garbage(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (make_garbage, r"file is not a database \(it is damaged: .* history builds it anew\)"),
        (Path.mkdir, r"unable to open database file \(its folder must be there"),
    ],
)
def test_what_is_no_database_is_unavailable(tmp_path: Path, make: Callable[[Path], None], reason: str) -> None:
    make(tmp_path / "store.db")
    with pytest.raises(Unavailable, match=rf"store\.db: {reason}"):
        SqliteStore(tmp_path / "store.db")


def test_a_full_disk_is_unavailable_and_loses_nothing(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        store.save([question(0)])
        store._connection.execute("PRAGMA max_page_count = 20")
        with pytest.raises(Unavailable, match=r"full \(free some space on its disk"):
            store.save([question(1, "x" * 500_000)])
        assert len(store.messages(ADA, C1, 10)) == 1


def test_a_page_that_rots_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(SqliteStore(path)) as store:
        store.save(question(n, "x" * 3000) for n in range(20))
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))
    with closing(SqliteStore(path)) as store, pytest.raises(Unavailable, match=r"malformed .*move it away"):
        store.messages(ADA, C1, 10)


def test_what_is_older_than_is_kept_goes_with_the_next_save(tmp_path: Path) -> None:
    now_ms = 1_000
    with closing(SqliteStore(tmp_path / "store.db", keep_ms=500, now_ms=lambda: now_ms)) as store:
        store.save([question(n) for n in (400, 600, 900)])
        assert [saved.turn.message for saved in store.messages(ADA, C1, 10)] == ["u-600", "u-900"]
        now_ms = 1_200
        store.save([SavedAt(1000, ConversationDeleted(UserId("bob"), C1, 1))])
        assert store.conversations(ADA, 10) == (Conversation(C1, 900, 900, 1, "hello"),)
        assert store.messages(ADA, C1, 10) == (question(900).saved,)


def test_a_name_goes_with_the_last_turn_of_its_conversation(tmp_path: Path) -> None:
    now_ms = 1_000
    with closing(SqliteStore(tmp_path / "store.db", keep_ms=500, now_ms=lambda: now_ms)) as store:
        store.save([question(900), question(990), SavedAt(991, ConversationRenamed(ADA, C1, "a name", 991))])
        now_ms = 1_450
        store.save([question(1_400)])
        assert store.conversations(ADA, 10)[0].title == "a name"
        now_ms = 2_000
        store.save([SavedAt(2_000, ConversationDeleted(UserId("bob"), C1, 1))])
        store.save([question(1_990)])
        assert store.conversations(ADA, 10)[0].title == "hello"


def test_a_file_is_named_once_and_no_two_alike(tmp_path: Path) -> None:
    names = []
    for path in ("one.db", "one.db", "other.db"):
        with closing(SqliteStore(tmp_path / path)) as store:
            names.append(store.identity())
    assert names[0] == names[1] != names[2]
    assert (tmp_path / "one.db").stat().st_mode & 0o777 == 0o600


def test_a_turn_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        store.save([question(0)])
        store._connection.execute("UPDATE turns SET record = x'c301ffffffffffffffff'")
        for ask in (
            lambda: store.history(ADA, C1, 100),
            lambda: store.messages(ADA, C1, 9),
            lambda: store.turns_of_reply(ADA, question(0).saved.reply),
        ):
            with pytest.raises(Unavailable, match="a turn in it cannot be read: no schema known"):
                ask()


def test_a_file_that_was_left_before_its_journal_was_chosen_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(SqliteStore(path)), closing(sqlite3.connect(path)):
        pass
    with closing(sqlite3.connect(path)) as left:
        left.execute("PRAGMA journal_mode = DELETE")
    with closing(SqliteStore(path)) as store:
        assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
