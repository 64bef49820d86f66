"""One partition in memory, and the cursors that read partitions: the part of the twin that is plain data.

In: appends, expiry, compaction. Out: records from an offset on. Offsets are never reused and, as on Kafka, not
without holes: expiry, compaction, aborted records and the marker that ends a transaction all leave some.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from topics.log import Append, Place, Record


@dataclass(frozen=True, slots=True)
class _Entry:
    record: Record
    aborted: bool


class Partition:
    """`begin` is the oldest offset left, `end` one past the newest."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.begin = 0
        self.end = 0
        self._entries: list[_Entry] = []

    def append(self, append: Append, timestamp_ms: int, *, aborted: bool = False) -> None:
        record = Record(self.place, self.end, timestamp_ms, append.key, append.value, append.headers)
        self._entries.append(_Entry(record, aborted))
        self.end += 1

    def mark(self) -> None:
        """Takes the offset of a transaction's end, which no reader ever sees."""
        self.end += 1

    def read(self, offset: int, limit: int, committed_only: bool) -> tuple[list[Record], int]:
        """Up to `limit` records from `offset` on, and the offset to go on from: `end` when nothing more is there."""
        if offset >= self.end:
            return [], offset
        found: list[Record] = []
        for index in range(self._index(offset), len(self._entries)):
            entry = self._entries[index]
            if entry.aborted and committed_only:
                continue
            if len(found) == limit:
                return found, entry.record.offset
            found.append(entry.record)
        return found, max(self.end, offset)

    def offset_at(self, timestamp_ms: int) -> int | None:
        return next((e.record.offset for e in self._entries if e.record.timestamp_ms >= timestamp_ms), None)

    def delete_before(self, offset: int) -> None:
        self.begin = max(self.begin, min(offset, self.end))
        del self._entries[: self._index(self.begin)]

    def compact(self) -> None:
        """Keeps the newest record of each key, and of those no tombstone; records without a key stay."""
        committed = [entry for entry in self._entries if not entry.aborted]
        newest = {entry.record.key: entry.record.offset for entry in committed}
        self._entries = [
            entry
            for entry in committed
            if entry.record.key is None
            or (newest[entry.record.key] == entry.record.offset and entry.record.value is not None)
        ]

    def _index(self, offset: int) -> int:
        return bisect_left(self._entries, offset, key=lambda entry: entry.record.offset)


class Cursors:
    """Next offsets in several partitions. They are served in turn, so that a full one starves no other."""

    def __init__(self, partitions: Mapping[Place, Partition], *, committed_only: bool) -> None:
        self._partitions = partitions
        self._committed_only = committed_only
        self.next: dict[Place, int] = {}

    def add(self, place: Place, offset: int) -> None:
        self.next[place] = max(offset, self._partitions[place].begin)

    def take(self, limit: int) -> list[Record]:
        taken: list[Record] = []
        for place in tuple(self.next):
            if len(taken) == limit:
                break
            found, after = self._partitions[place].read(self.next[place], limit - len(taken), self._committed_only)
            if found:
                del self.next[place]  # to the end of the queue
            self.next[place] = after
            taken += found
        return taken
