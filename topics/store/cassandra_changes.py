"""What a save changes, sorted by conversation, and in which writes it goes to a cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from schemas.events import ConversationDeleted, ConversationRenamed, TurnSaved
from schemas.ids import ConversationId, MessageId, UserId
from topics.store.contract import Conversation, SavedAt

BATCH_BYTES, ROW_BYTES = 32_768, 100  # Cassandra refuses batches over 50 KiB unless it is told otherwise

Key: TypeAlias = tuple[UserId, ConversationId]
Call: TypeAlias = tuple[str, tuple[object, ...]]


@dataclass(slots=True)
class Changes:
    """What a save changes of one conversation. `known` is its line before."""

    turns: list[tuple[TurnSaved, int]] = field(default_factory=list)
    names: list[tuple[ConversationRenamed, int]] = field(default_factory=list)
    deleted_ms: int = -1
    known: Line | None = None

    @property
    def gone_ms(self) -> int:
        """What was posted or named at that time or before is deleted."""
        return max(self.deleted_ms, self.known.deleted_ms if self.known else -1)


@dataclass(frozen=True, slots=True)
class Line:
    """A row of `conversations`; `messages` 0: only its deletion is left."""

    conversation: ConversationId
    created_ms: int
    updated_ms: int
    messages: int
    title: str
    deleted_ms: int

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> Line:
        name, created_ms, updated_ms, messages, title, deleted_ms = row
        gone_ms = -1 if deleted_ms is None else deleted_ms
        return cls(ConversationId(name), created_ms or 0, updated_ms or 0, messages or 0, title or "", gone_ms)

    def listed(self) -> Conversation:
        return Conversation(self.conversation, self.created_ms, self.updated_ms, self.messages, self.title)


def in_batches(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """Writes to one partition, as many together as no cluster finds too large."""
    batch: list[Call] = []
    room = BATCH_BYTES
    for call in calls:
        size = ROW_BYTES + sum(len(value) for value in call[1] if isinstance(value, bytes | str))
        if batch and size > room:
            yield batch
            batch, room = [], BATCH_BYTES
        batch.append(call)
        room -= size
    if batch:
        yield batch


def in_order(rows: Iterable[tuple[Any, ...]]) -> tuple[MessageId, ...]:
    """Messages of rows (posted_ms, reply, role, message), oldest first, a question before its answer."""
    ordered = sorted(rows, key=lambda row: (row[0], row[1], row[2] != "user", row[3]))
    return tuple(MessageId(message) for _, _, _, message in ordered)


def days_of(reply: str) -> str:
    """The time in a reply's id, to about three days: a user's replies of that time lie together."""
    return reply[7:12]


class Microseconds:
    """The time since 1970, and never the same twice in a process."""

    def __init__(self) -> None:
        self._last, self._lock = 0, threading.Lock()

    def now(self) -> int:
        with self._lock:
            self._last = max(self._last + 1, time.time_ns() // 1000)
            return self._last


def changes_of(records: Iterable[SavedAt]) -> dict[Key, Changes]:
    found: dict[Key, Changes] = {}
    for record in records:
        saved = record.saved
        change = found.setdefault((saved.user, saved.conversation), Changes())
        match saved:
            case TurnSaved():
                change.turns.append((saved, record.offset))
            case ConversationRenamed():
                change.names.append((saved, record.offset))
            case ConversationDeleted():
                change.deleted_ms = max(change.deleted_ms, saved.at_ms)
    return found
