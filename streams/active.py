"""The conversations that intake holds of one partition of `messages`, and what it counts over them.

A pure value: who is touched, parked, dropped or forgotten follows from the records of the partition alone, and a
restart from the changelog finds the same order again.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from schemas.events import Turn
from schemas.ids import ConversationId, UserId, created_ms
from schemas.kept_records import ConversationKept
from streams.allowances import Allowances
from streams.bounds import PARKED_COST_BYTES, text_bytes
from streams.writers import Writers
from topics.catalog import DAY, MINUTE, RESUME_WINDOW_MS

KEPT_IDLE_MS = 10 * MINUTE
DELETED_MS = DAY
MOST_HELD_BYTES = 16 * 1024 * 1024
# What a turn takes in memory beside its text and its token ids.
TURN_COST_BYTES = 500

_TOUCHES_BITS = 20

Key: TypeAlias = tuple[UserId, ConversationId]


@dataclass(slots=True)
class Partition:
    """The conversations of one partition, the longest untouched first; `changed` since the last commit.

    `waiting` counts the bytes of each user's parked messages, and what else a message takes. `sizes` are those of the
    turns at hand, `held_bytes` all of them together; of the conversations in `droppable`, the longest untouched first,
    they are given up when they are more than `room`.
    """

    room: int = MOST_HELD_BYTES
    kept: OrderedDict[Key, ConversationKept] = field(default_factory=OrderedDict)
    parked: set[Key] = field(default_factory=set)
    changed: set[Key] = field(default_factory=set)
    waiting: Counter[UserId] = field(default_factory=Counter)
    sizes: dict[Key, int] = field(default_factory=dict)
    droppable: OrderedDict[Key, None] = field(default_factory=OrderedDict)
    held_bytes: int = 0
    quotas: Allowances = field(default_factory=Allowances)
    writers: Writers = field(default_factory=Writers)
    _used: int = 0

    def begin(self, offset: int) -> None:
        """Touches are numbered by the record that they belong to, so that a restart finds their order again."""
        self._used = offset << _TOUCHES_BITS

    def put(self, kept: ConversationKept) -> None:
        key = (kept.user, kept.conversation)
        if self.kept.get(key) == kept:
            return
        self._used += 1
        self._take(key, replace(kept, used=self._used))
        self.kept.move_to_end(key)

    def drop(self, key: Key) -> None:
        self._count(key, None)
        self.kept.pop(key, None)
        self.parked.discard(key)
        self.changed.add(key)

    def forget(self, kept: ConversationKept) -> None:
        """As if nothing had been heard of it, but that it was deleted: the store need not know of that yet."""
        self.drop((kept.user, kept.conversation))
        if kept.deleted_ms:
            bare = ConversationKept(kept.user, kept.conversation, kept.touched_ms, False, (), (), None, ())
            self.put(replace(bare, deleted_ms=kept.deleted_ms, dropped=True))

    def make_room(self) -> None:
        """Gives up the turns of those that were not touched for longest; all else of them stays."""
        while self.held_bytes > self.room and self.droppable:
            key = next(iter(self.droppable))
            self._take(key, replace(self.kept[key], turns=(), dropped=True))

    def restore(self, kept: ConversationKept) -> None:
        if kept.turns and kept.leaf is None:  # written before there were branches
            kept = replace(kept, leaf=kept.turns[-1].message, branch=kept.turns[-1].message)
        self._take((kept.user, kept.conversation), kept)

    def restored(self) -> None:
        """Everything is there again: brings it into the order of its touches."""
        self.kept = OrderedDict(sorted(self.kept.items(), key=lambda item: (item[1].used, item[1].touched_ms)))
        self.droppable = OrderedDict((key, None) for key in self.kept if key in self.droppable)
        self.changed.clear()
        self.quotas.restored()

    def _take(self, key: Key, kept: ConversationKept) -> None:
        self._count(key, kept)
        self.kept[key] = kept
        (self.parked.add if kept.parked else self.parked.discard)(key)
        self.changed.add(key)

    def _count(self, key: Key, kept: ConversationKept | None) -> None:
        self.droppable.pop(key, None)
        if kept and kept.turns and not (kept.loading or kept.parked or kept.open_reply):
            self.droppable[key] = None
        self._count_turns(key, kept)
        before = self.kept.get(key)
        if not (before and before.parked) and not (kept and kept.parked):
            return
        self.waiting[key[0]] += _parked_bytes(kept) - _parked_bytes(before)
        if not self.waiting[key[0]]:
            del self.waiting[key[0]]

    def _count_turns(self, key: Key, kept: ConversationKept | None) -> None:
        before = self.kept.get(key)
        if (before.turns if before else ()) is (kept.turns if kept else ()):
            return
        size = sum(map(turn_bytes, kept.turns)) if kept else 0
        self.held_bytes += size - self.sizes.pop(key, 0)
        if size:
            self.sizes[key] = size


def later(kept: ConversationKept, now_ms: int) -> int:
    """The log time, but later than all that was heard of the conversation: two records may have the same millisecond,
    and the store orders by it.
    """
    return max(now_ms, kept.deleted_ms + 1, kept.touched_ms + 1)


def lost(kept: ConversationKept, now_ms: int) -> bool:
    """Whether the open reply's end will never be told: the log has forgotten all of it, long after its deadline."""
    return kept.open_reply is not None and abs(now_ms - created_ms(kept.open_reply)) > RESUME_WINDOW_MS


def forget_idle(partition: Partition, now_ms: int) -> None:
    """Drops what nobody has touched for a while; the store knows it by then. That something was deleted is remembered
    for DELETED_MS: log time goes by in a moment where intake was away, and the store is told of it only then.
    """
    partition.quotas.forget_idle(now_ms)
    while partition.kept:
        key, kept = next(iter(partition.kept.items()))
        if now_ms - kept.touched_ms < KEPT_IDLE_MS:
            return
        if kept.parked or (kept.open_reply and not lost(kept, now_ms)):
            partition.put(replace(kept, touched_ms=now_ms))
        elif kept.deleted_ms and now_ms - kept.deleted_ms < DELETED_MS:
            partition.forget(replace(kept, touched_ms=now_ms))
        else:
            partition.drop(key)


def turn_bytes(turn: Turn) -> int:
    return TURN_COST_BYTES + len(turn.text.encode()) + len(turn.token_ids)


def _parked_bytes(kept: ConversationKept | None) -> int:
    return sum(PARKED_COST_BYTES + text_bytes(parked.message) for parked in kept.parked) if kept else 0
