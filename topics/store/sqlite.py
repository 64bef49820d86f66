"""The embedded conversation store: one SQLite file that several processes read and write at once.

In: saved turns. Out: see `topics/store/contract.py`. A turn is kept as its Avro record, so that a new field needs no
migration; the columns beside it are what is looked up or ordered by. SCHEMA_VERSION is the file's `user_version`.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from schemas.codec import Codec
from schemas.events import ClientKey, TurnSaved
from schemas.ids import ConversationId, MessageId, ReplyId, UserId
from topics.errors import Unavailable
from topics.store.contract import TITLE_CHARACTERS, Conversation, Cursor, History, SavedAt

SCHEMA_VERSION = 1
BUSY_TIMEOUT_S = 5.0

_TABLES = """
CREATE TABLE turns (
    id INTEGER PRIMARY KEY,
    user TEXT NOT NULL,
    conversation TEXT NOT NULL,
    message TEXT NOT NULL,
    reply TEXT NOT NULL,
    role TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    newest_offset INTEGER NOT NULL,
    client_key TEXT,
    title TEXT NOT NULL,
    record BLOB NOT NULL,
    UNIQUE (user, conversation, message)
) STRICT;
CREATE INDEX turns_in_order ON turns (user, conversation, reply, role, first_offset, message, tokens, created_ms);
CREATE INDEX turns_by_key ON turns (user, conversation, client_key, first_offset) WHERE client_key IS NOT NULL;
CREATE INDEX turns_by_reply ON turns (user, reply);
"""

_SAVE = """
INSERT INTO turns (user, conversation, message, reply, role, created_ms, tokens, first_offset, newest_offset,
                   client_key, title, record)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (user, conversation, message) DO UPDATE SET
    reply = excluded.reply, role = excluded.role, created_ms = excluded.created_ms, tokens = excluded.tokens,
    newest_offset = excluded.newest_offset, client_key = excluded.client_key, title = excluded.title,
    record = excluded.record
WHERE excluded.newest_offset > turns.newest_offset
"""

_SAVED_EARLIER = """
UPDATE turns SET first_offset = ?4 WHERE user = ?1 AND conversation = ?2 AND message = ?3 AND first_offset > ?4
"""

# The first offset of a reply is that of its user's turn: an answer that was saved late still follows its question.
_ORDERED = """
SELECT id, message, tokens FROM (
    SELECT id, message, tokens, role = 'assistant' AS answer, first_offset,
           min(first_offset) OVER (PARTITION BY reply) AS exchange
    FROM turns INDEXED BY turns_in_order WHERE user = ? AND conversation = ?)
ORDER BY exchange DESC, answer DESC, first_offset DESC
"""

_CONVERSATIONS = """
SELECT conversation, min(created_ms), max(created_ms) AS updated_ms, count(*),
       (SELECT title FROM turns AS t WHERE t.user = turns.user AND t.conversation = turns.conversation
        ORDER BY first_offset LIMIT 1)
FROM turns WHERE user = ?1 GROUP BY conversation
HAVING ?2 IS NULL OR (max(created_ms), conversation) < (?2, ?3)
ORDER BY updated_ms DESC, conversation DESC LIMIT ?4
"""

_KEYS = """
SELECT record FROM turns
WHERE user = ? AND conversation = ? AND client_key IS NOT NULL AND created_ms >= ? ORDER BY first_offset
"""

_KEY = "SELECT record FROM turns WHERE user = ? AND conversation = ? AND client_key = ? ORDER BY first_offset LIMIT 1"

_OF_REPLY = "SELECT record FROM turns WHERE user = ? AND reply = ? ORDER BY role = 'assistant', first_offset"

_RECORDS = "SELECT id, record FROM turns WHERE id IN (SELECT value FROM json_each(?))"


class SqliteStore:
    """Opens or creates the file at `path`. Raises Unavailable when it cannot be used, here and in every method."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._codec = Codec()
        self._lock = threading.Lock()
        with self._errors():
            self._connection = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
        try:
            with self._errors():
                self._prepare()
        except Unavailable:
            self._connection.close()
            raise

    def save(self, turns: Iterable[SavedAt]) -> None:
        rows = [self._row(turn) for turn in turns]
        places = [(*row[:3], row[8]) for row in rows]
        with self._lock, self._errors(), self._writing():
            self._connection.executemany(_SAVE, rows)
            self._connection.executemany(_SAVED_EARLIER, places)

    def history(self, user: UserId, conversation: ConversationId, limit_tokens: int, keys_since_ms: int = 0) -> History:
        newest: list[int] = []
        for row, _, tokens in self._query(_ORDERED, user, conversation):
            limit_tokens -= tokens
            if limit_tokens < 0:
                break
            newest.append(row)
        turns = tuple(saved.turn for saved in self._records(newest))
        keyed = self._query(_KEYS, user, conversation, keys_since_ms)
        return History(turns, tuple(_client_key(self._codec.decode(record)) for (record,) in keyed))

    def conversations(self, user: UserId, limit: int, before: Cursor | None = None) -> tuple[Conversation, ...]:
        updated_ms, conversation = before or (None, None)
        return tuple(Conversation(*row) for row in self._query(_CONVERSATIONS, user, updated_ms, conversation, limit))

    def messages(
        self, user: UserId, conversation: ConversationId, limit: int, before: MessageId | None = None
    ) -> tuple[TurnSaved, ...]:
        newest = [(row, message) for row, message, _ in self._query(_ORDERED, user, conversation)]
        if before is not None:
            place = next((n for n, (_, message) in enumerate(newest) if message == before), len(newest))
            newest = newest[place + 1 :]
        return self._records([row for row, _ in newest[:limit]])

    def turns_of_reply(self, user: UserId, reply: ReplyId) -> tuple[TurnSaved, ...]:
        return tuple(self._codec.decode(record) for (record,) in self._query(_OF_REPLY, user, reply))

    def reply_for_key(self, user: UserId, conversation: ConversationId, client_key: str) -> ClientKey | None:
        found = self._query(_KEY, user, conversation, client_key)
        return _client_key(self._codec.decode(found[0][0])) if found else None

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _prepare(self) -> None:
        connection = self._connection
        connection.execute("PRAGMA synchronous = FULL")
        with self._writing():
            [version] = connection.execute("PRAGMA user_version").fetchone()
            if version > SCHEMA_VERSION:
                raise Unavailable(
                    f"{self._path}: written with schema version {version}; this Laneway knows up to {SCHEMA_VERSION}"
                )
            if version == 0:
                for statement in _TABLES.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("PRAGMA journal_mode = WAL")

    def _query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock, self._errors():
            return self._connection.execute(statement, values).fetchall()

    def _records(self, newest_first: Sequence[int]) -> tuple[TurnSaved, ...]:
        records: dict[int, bytes] = dict(self._query(_RECORDS, json.dumps(newest_first)))
        return tuple(self._codec.decode(records[row]) for row in reversed(newest_first))

    def _row(self, turn: SavedAt) -> tuple[str | int | bytes | None, ...]:
        saved = turn.saved
        return (
            saved.user,
            saved.conversation,
            saved.turn.message,
            saved.reply,
            saved.turn.role,
            saved.created_ms,
            len(saved.turn.token_ids) // 4,
            turn.offset,
            turn.offset,
            saved.client_key,
            saved.turn.text[:TITLE_CHARACTERS],
            self._codec.encode(saved),
        )

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            yield

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise Unavailable(f"{self._path}: {error}") from error


def _client_key(saved: TurnSaved) -> ClientKey:
    return ClientKey(saved.client_key or "", saved.body_hash or "", saved.reply)
