"""What was read of the reply log not long ago, by reply: who resumes one of these waits for no broker.

A partition is kept from the offset `begin` on, as far as it was read. Which replies are whole in it is told by time: a
record is not older than its reply, but for the clocks' disagreement, so whatever was made after a moment lies behind
the first record of that moment. Beyond a number of bytes the replies that were seen first are let go of, whole.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from schemas.ids import ReplyId, created_ms
from topics.catalog import SECOND
from topics.log import Headers, Place, Record
from topics.subscription import Source, source_of

CLOCK_SLACK_MS = 10 * SECOND
MOST_BYTES = 64 << 20
LINE_BYTES = 256  # of a record's objects beside its key and value

# A record less its place. A plain tuple of plain values, which the garbage collector does not look at again.
Line: TypeAlias = tuple[int, int, bytes | None, bytes | None, Headers]


@dataclass(eq=False, slots=True)
class _Kept:
    """A partition from `begin` on. Whole are the replies made at `whole_from_ms` or later, and after `lost_ms`."""

    begin: int
    whole_from_ms: int
    lost_ms: int = 0
    lines: dict[bytes, list[Line]] = field(default_factory=dict)


class Recent:
    """Not safe for threads: its owner guards it."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._kept: dict[Place, _Kept] = {}
        self._first_seen: deque[tuple[_Kept, bytes]] = deque()

    def add(self, record: Record, source: Source) -> None:
        """One record further; a partition's first is where its keeping begins."""
        kept = self._kept.get(record.place)
        if kept is None:
            whole_from_ms = record.timestamp_ms + CLOCK_SLACK_MS + 1  # what was appended before is not newer than it
            kept = self._kept[record.place] = _Kept(record.offset, whole_from_ms)
        lines = kept.lines.get(source[1])
        if lines is None:
            lines = kept.lines[source[1]] = []
            self._first_seen.append((kept, source[1]))
        lines.append(record[1:])
        self._bytes += _size(lines[-1])
        while self._bytes > self._most_bytes:
            self._let_go()

    def add_older(self, place: Place, older: Sequence[Record], end: int, whole_from_ms: int) -> None:
        """All that lies between the first record of the moment `whole_from_ms` less the clocks' slack and `end`, which
        is not before where keeping began."""
        kept = self._kept.setdefault(place, _Kept(end, whole_from_ms))
        found: defaultdict[bytes, list[Line]] = defaultdict(list)
        for record in older:
            if record.offset < kept.begin:
                found[source_of(record)[1]].append(record[1:])
        for key, lines in found.items():
            if key not in kept.lines:
                self._first_seen.append((kept, key))
            kept.lines[key] = lines + kept.lines.get(key, [])
            self._bytes += sum(map(_size, lines))
        kept.begin = min(kept.begin, *(record.offset for record in older[:1]), end)
        kept.whole_from_ms = min(kept.whole_from_ms, whole_from_ms)
        while self._bytes > self._most_bytes:
            self._let_go()

    def of(self, reply: ReplyId, source: Source) -> list[Record] | None:
        """Every record of the reply so far; None when some may be missing here."""
        place, key = source
        kept = self._kept.get(place)
        if kept is None or not kept.lost_ms < created_ms(reply) >= kept.whole_from_ms:
            return None
        return [Record(place, *line) for line in kept.lines.get(key, ())]

    def forget(self, place: Place) -> None:
        """What comes of the place from now on does not follow what is kept."""
        kept = self._kept.pop(place, None)
        if kept is not None:
            self._bytes -= sum(_size(line) for lines in kept.lines.values() for line in lines)
            self._first_seen = deque(entry for entry in self._first_seen if entry[0] is not kept)

    def _let_go(self) -> None:
        kept, key = self._first_seen.popleft()
        lines = kept.lines.pop(key, ())
        if lines:
            self._bytes -= sum(map(_size, lines))
            kept.lost_ms = max(kept.lost_ms, lines[0][1] + CLOCK_SLACK_MS)


def _size(line: Line) -> int:
    return LINE_BYTES + len(line[2] or b"") + len(line[3] or b"")
