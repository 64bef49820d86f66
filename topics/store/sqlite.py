"""The embedded conversation store: one SQLite file that several processes read at once and one stage writes.

In: records of `turns`. Out: see `topics/store/contract.py`. A turn is kept as its Avro record, so that a new field
needs no migration; the columns beside it are what is looked up or ordered by. SCHEMA_VERSION is its `user_version`.
The file is in WAL mode: readers see the last commit and wait for nobody, also while history writes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from schemas.codec import Codec, CodecError
from schemas.events import ClientKey, ConversationDeleted, ConversationRenamed, TurnSaved
from schemas.ids import ConversationId, MessageId, ReplyId, UserId
from topics.errors import Unavailable
from topics.store import sqlite_schema as sql
from topics.store.contract import Conversation, Cursor, History, SavedAt, posted_ms, title_of

SCHEMA_VERSION = len(sql.STEPS)
BUSY_TIMEOUT_S = 5.0
MEMORY = ":memory:"
WIPE_TIMEOUT_MS = 100

_MOST = 2**63 - 1
_NEWEST = Cursor(_MOST, ConversationId(""))
_DAMAGED = "it is damaged: stop Laneway, move it away with its -wal and -shm, start again; history builds it anew"
_ADVICE = {
    sqlite3.SQLITE_FULL: "free some space on its disk; what could not be saved is saved then",
    sqlite3.SQLITE_IOERR: "its disk does not read or write as it should: look at the disk and its free space",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CANTOPEN: "its folder must be there, and this process must be allowed to write in it",
    sqlite3.SQLITE_READONLY: "this process must be allowed to write the file and its folder",
    sqlite3.SQLITE_BUSY: f"another process has held it for {BUSY_TIMEOUT_S:g} s",
}


class SqliteStore:
    """Opens or creates the file at `path`. Raises Unavailable when it cannot be used, here and in every method.

    `keep_ms` 0 keeps turns for ever; else what is older is erased by the saves that come later.
    """

    def __init__(
        self, path: Path, keep_ms: int = 0, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        self._path, self._keep_ms, self._now_ms = path, keep_ms, now_ms
        self._codec = Codec()
        self._lock = threading.Lock()
        self._unwiped = True
        with self._errors():
            if path.parent.is_dir() and not path.exists() and str(path) != MEMORY:
                path.touch(0o600)  # all that anybody has said; the files beside it are as this one
            self._connection = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
        try:
            with self._errors():
                self._prepare()
        except Unavailable:
            self._connection.close()
            raise

    def save(self, records: Iterable[SavedAt]) -> None:
        turns: list[tuple[Any, ...]] = []
        renamed: list[tuple[Any, ...]] = []
        deleted: list[tuple[Any, ...]] = []
        for record in records:
            match record.saved:
                case TurnSaved() as turn:
                    turns.append(self._row(turn, record.offset))
                case ConversationRenamed() as change:
                    renamed.append((change.user, change.conversation, change.title, change.at_ms, record.offset))
                case ConversationDeleted() as change:
                    deleted.append((change.user, change.conversation, change.at_ms))
        with self._lock, self._errors(), self._transaction("BEGIN IMMEDIATE"):
            for statement, rows in (
                *((statement, deleted) for statement in sql.DELETE),
                (sql.SAVE, turns),
                (sql.RENAME, renamed),
            ):
                self._connection.executemany(statement, rows)
            aged = self._aged()
            self._connection.executemany(sql.DELETE_AGED, aged)
            self._connection.executemany(sql.SUMMARIZE, sorted({row[:2] for row in (*turns, *deleted, *aged)}))
            self._connection.executemany(sql.FORGET_AGED, aged)
        self._unwiped = self._unwiped or bool(deleted)
        if self._unwiped:
            self._wipe()

    def identity(self) -> str:
        return str(self._query("PRAGMA application_id")[0][0])

    def history(
        self,
        user: UserId,
        conversation: ConversationId,
        limit_tokens: int,
        keys_since_ms: int = 0,
        leaf: MessageId | None = None,
    ) -> History:
        with self._snapshot():
            found = leaf is None or bool(self._rows(sql.POSTED, user, conversation, leaf))
            turns = self._branch(user, conversation, sql.LONGEST_BRANCH, limit_tokens, leaf)
            keys = self._rows(sql.KEYS, user, conversation, keys_since_ms)
            system = self._system(user, conversation)
        return History(tuple(saved.turn for saved in turns), tuple(ClientKey(*key) for key in keys), system, found)

    def path(
        self, user: UserId, conversation: ConversationId, limit: int, leaf: MessageId | None = None
    ) -> tuple[TurnSaved, ...]:
        with self._snapshot():
            return self._branch(user, conversation, limit, _MOST, leaf)

    def tip(self, user: UserId, conversation: ConversationId, through: MessageId) -> MessageId | None:
        found = self._query(sql.TIP, user, conversation, through)
        return MessageId(found[0][0]) if found else None

    def children(
        self, user: UserId, conversation: ConversationId, parents: Iterable[MessageId | None]
    ) -> dict[MessageId | None, tuple[MessageId, ...]]:
        asked = dict.fromkeys(parents)
        found: dict[MessageId | None, list[MessageId]] = {parent: [] for parent in asked}
        wanted = json.dumps([parent or "" for parent in asked])
        for parent, message in self._query(sql.CHILDREN, user, conversation, wanted):
            found[parent or None].append(message)
        return {parent: tuple(messages) for parent, messages in found.items()}

    def system(self, user: UserId, conversation: ConversationId) -> str:
        with self._lock, self._errors():
            return self._system(user, conversation)

    def conversations(self, user: UserId, limit: int, before: Cursor | None = None) -> tuple[Conversation, ...]:
        return tuple(Conversation(*row) for row in self._query(sql.LIST, user, *(before or _NEWEST), limit))

    def conversation(self, user: UserId, conversation: ConversationId) -> Conversation | None:
        found = self._query(sql.LINE, user, conversation)
        return Conversation(*found[0]) if found else None

    def deleted_ms(self, user: UserId, conversation: ConversationId) -> int:
        found = self._query(sql.DELETED, user, conversation)
        return found[0][0] or 0 if found else 0

    def messages(
        self, user: UserId, conversation: ConversationId, limit: int, before: MessageId | None = None
    ) -> tuple[TurnSaved, ...]:
        with self._snapshot():
            if before is None:
                newest = self._connection.execute(sql.NEWEST, (user, conversation))
                return self._records([row for row, _, _ in itertools.islice(newest, limit)])
            place = self._connection.execute(sql.POSTED, (user, conversation, before)).fetchone()
            if place is None:
                return ()
            older = self._connection.execute(sql.NEWEST_FROM, (user, conversation, *place))
            found = itertools.islice(itertools.dropwhile(lambda row: row[1] != before, older), 1, limit + 1)
            return self._records([row for row, _, _ in found])

    def has_message(self, user: UserId, conversation: ConversationId, message: MessageId) -> bool:
        return bool(self._query(sql.POSTED, user, conversation, message))

    def turns_of_reply(self, user: UserId, reply: ReplyId) -> tuple[TurnSaved, ...]:
        with self._lock, self._errors():
            return tuple(self._codec.decode(record) for (record,) in self._rows(sql.OF_REPLY, user, reply))

    def reply_for_key(self, user: UserId, conversation: ConversationId, client_key: str) -> ClientKey | None:
        found = self._query(sql.KEY, user, conversation, client_key)
        return ClientKey(*found[0]) if found else None

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _prepare(self) -> None:
        connection = self._connection
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")  # what was deleted is overwritten, not only unlinked
        connection.create_function("title_of", 1, title_of, deterministic=True)
        connection.create_function("parent_of", 1, lambda record: self._codec.decode(record).turn.parent or "")
        connection.create_function("body_hash_of", 1, lambda record: self._codec.decode(record).body_hash)
        [mode] = connection.execute("PRAGMA journal_mode").fetchone()
        [named] = connection.execute("PRAGMA application_id").fetchone()
        if named and (self._version(), mode) == (SCHEMA_VERSION, "wal"):
            return  # and nothing is written: the file may be locked, or its disk full
        with self._transaction("BEGIN IMMEDIATE"):
            version = self._version()
            if version > SCHEMA_VERSION:
                raise Unavailable(
                    f"{self._path}: written with schema version {version}; this Laneway knows up to {SCHEMA_VERSION}"
                )
            for statement in ";".join(sql.STEPS[version:]).split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            if connection.execute("PRAGMA application_id").fetchone() == (0,):
                connection.execute(f"PRAGMA application_id = {1 + secrets.randbelow(2**31 - 1)}")
        connection.execute("PRAGMA journal_mode = WAL")

    def _version(self) -> int:
        [version] = self._connection.execute("PRAGMA user_version").fetchone()
        return int(version)

    def _query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock, self._errors():
            return self._rows(statement, *values)

    def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()

    def _branch(
        self, user: UserId, conversation: ConversationId, most: int, tokens: int, leaf: MessageId | None
    ) -> tuple[TurnSaved, ...]:
        if leaf is None:
            newest = self._connection.execute(sql.NEWEST, (user, conversation)).fetchone()
            leaf = newest[1] if newest else None
        rows = self._rows(sql.PATH, user, conversation, leaf, most, tokens)
        return self._records([row for (row,) in rows])

    def _system(self, user: UserId, conversation: ConversationId) -> str:
        found = self._rows(sql.SYSTEM, user, conversation)
        return found[0][0] if found else ""

    def _records(self, newest_first: Sequence[int]) -> tuple[TurnSaved, ...]:
        records: dict[int, bytes] = dict(self._rows(sql.RECORDS, json.dumps(newest_first)))
        return tuple(self._codec.decode(records[row]) for row in reversed(newest_first))

    def _row(self, saved: TurnSaved, offset: int) -> tuple[str | int | bytes | None, ...]:
        return (
            saved.user,
            saved.conversation,
            saved.turn.message,
            saved.reply,
            saved.turn.role,
            saved.created_ms,
            len(saved.turn.token_ids) // 4,
            offset,
            saved.client_key,
            title_of(saved.turn.text),
            self._codec.encode(saved),
            posted_ms(saved),
            saved.turn.parent or "",
            saved.body_hash,
            saved.system,
        )

    def _wipe(self) -> None:
        """Empties the -wal file, in which pages from before a deletion lie on. Who reads at this moment puts it off to
        the next save.
        """
        with self._lock, self._errors():
            self._connection.execute(f"PRAGMA busy_timeout = {WIPE_TIMEOUT_MS}")
            [busy, _, _] = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
            self._unwiped = bool(busy)

    def _aged(self) -> list[tuple[Any, ...]]:
        """Conversations in which something is older than is kept, and how old that may be."""
        if not self._keep_ms:
            return []
        until_ms = self._now_ms() - self._keep_ms
        return [(*key, until_ms) for key in sorted(set(self._rows(sql.AGED, until_ms)))]

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Several queries that see one moment, though a conversation is deleted meanwhile."""
        with self._lock, self._errors(), self._transaction("BEGIN"):
            yield

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        with self._connection:
            self._connection.execute(begin)
            yield

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Unavailable(f"{self._path}: {error} ({_ADVICE[sqlite3.SQLITE_CANTOPEN]})") from error
        except CodecError as error:
            raise Unavailable(f"{self._path}: a turn in it cannot be read: {error}") from error
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of an extended code says where
            advice = f" ({_ADVICE[code]})" if code in _ADVICE else ""
            raise Unavailable(f"{self._path}: {error}{advice}") from error
