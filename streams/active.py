"""The conversations that intake holds of one partition of `messages`, and what it counts over them.

A pure value: who is touched, parked or forgotten follows from the records of the partition alone.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from schemas.ids import ConversationId, UserId, created_ms
from schemas.kept_records import ConversationKept
from streams.bounds import PARKED_COST_BYTES, text_bytes
from topics.catalog import MINUTE, RESUME_WINDOW_MS

KEPT_IDLE_MS = 10 * MINUTE

Key: TypeAlias = tuple[UserId, ConversationId]


@dataclass(slots=True)
class Partition:
    """The conversations of one partition, the longest untouched first; `changed` since the last commit.

    `waiting` counts the bytes of each user's parked messages, and what else a message takes.
    """

    kept: OrderedDict[Key, ConversationKept] = field(default_factory=OrderedDict)
    parked: set[Key] = field(default_factory=set)
    changed: set[Key] = field(default_factory=set)
    waiting: Counter[UserId] = field(default_factory=Counter)

    def put(self, kept: ConversationKept) -> None:
        key = (kept.user, kept.conversation)
        if self.kept.get(key) == kept:
            return
        self._count(key, kept)
        self.kept[key] = kept
        self.kept.move_to_end(key)
        (self.parked.add if kept.parked else self.parked.discard)(key)
        self.changed.add(key)

    def drop(self, key: Key) -> None:
        self._count(key, None)
        self.kept.pop(key, None)
        self.parked.discard(key)
        self.changed.add(key)

    def _count(self, key: Key, kept: ConversationKept | None) -> None:
        before = self.kept.get(key)
        if not (before and before.parked) and not (kept and kept.parked):
            return
        self.waiting[key[0]] += _parked_bytes(kept) - _parked_bytes(before)
        if not self.waiting[key[0]]:
            del self.waiting[key[0]]


def later(kept: ConversationKept, now_ms: int) -> int:
    """The log time, but later than the last deletion: two records may have the same millisecond."""
    return max(now_ms, kept.deleted_ms + 1)


def lost(kept: ConversationKept, now_ms: int) -> bool:
    """Whether the open reply's end will never be told: the log has forgotten all of it, long after its deadline."""
    return kept.open_reply is not None and abs(now_ms - created_ms(kept.open_reply)) > RESUME_WINDOW_MS


def forget_idle(partition: Partition, now_ms: int) -> None:
    """Drops what nobody has touched for a while; the store knows it by then."""
    while partition.kept:
        key, kept = next(iter(partition.kept.items()))
        if now_ms - kept.touched_ms < KEPT_IDLE_MS:
            return
        if kept.parked or (kept.open_reply and not lost(kept, now_ms)):
            partition.put(replace(kept, touched_ms=now_ms))
        else:
            partition.drop(key)


def _parked_bytes(kept: ConversationKept | None) -> int:
    return sum(PARKED_COST_BYTES + text_bytes(parked.message) for parked in kept.parked) if kept else 0
