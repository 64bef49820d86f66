"""What was read of a partition of the reply log not long ago: who resumes one of its replies waits for no broker.

It is all that lies there from one offset on, as far as it was read. Which replies are whole in it is told by time: a
record is not older than its reply, but for the clocks' disagreement, so of a reply that was made well after the
records before that offset nothing is missing. Beyond a number of bytes the oldest records are let go of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from schemas.ids import ReplyId, created_ms
from topics.catalog import SECOND
from topics.log import Headers, Record
from topics.subscription import Source

CLOCK_SLACK_MS = 10 * SECOND
LINE_BYTES = 350  # of a record's objects and key, beside its value

# A record less its place. A plain tuple of plain values, which the garbage collector does not look at again.
Line: TypeAlias = tuple[int, int, bytes | None, bytes | None, Headers]
NOTHING = 1 << 62


class Recent:
    """Not safe for threads: its owner guards it. `begin` is the first offset kept; without one, nothing is."""

    def __init__(self) -> None:
        self._lines: deque[Line] = deque()
        self._value_bytes = 0
        self._begin = NOTHING
        self._whole_from_ms = NOTHING

    @property
    def size(self) -> int:
        """In bytes, about."""
        return self._value_bytes + LINE_BYTES * len(self._lines)

    def add(self, record: Record) -> None:
        """The next record of the partition; the first is where the keeping begins."""
        if self._begin == NOTHING:
            self._begins(record.offset, record.timestamp_ms)
        self._lines.append(record[1:])
        self._value_bytes += len(record.value or b"")

    def add_older(self, read: Sequence[Record], end: int, whole_from_ms: int) -> None:
        """All that lies between the first record of the moment `whole_from_ms` less the clocks' slack and `end`, which
        is not before where the keeping began."""
        begin = min(self._begin, end)
        older: list[Line] = [record[1:] for record in read if record.offset < begin]
        self._lines.extendleft(reversed(older))
        self._value_bytes += sum(len(line[3] or b"") for line in older)
        self._begin = min(begin, *(line[0] for line in older[:1]), end)
        self._whole_from_ms = min(self._whole_from_ms, whole_from_ms)

    def of(self, reply: ReplyId, source: Source) -> list[Record] | None:
        """Every record of the reply so far; None when some may be missing here."""
        if created_ms(reply) < self._whole_from_ms:
            return None
        place, key = source
        return [Record(place, *line) for line in self._lines if line[2] is not None and line[2].startswith(key)]

    def shrink(self, most_bytes: int) -> None:
        while self.size > most_bytes:
            offset, timestamp_ms, _, value, _ = self._lines.popleft()
            self._value_bytes -= len(value or b"")
            self._begins(offset + 1, timestamp_ms)

    def forget(self) -> None:
        """What comes from now on does not follow what is kept."""
        self._lines.clear()
        self._value_bytes, self._begin, self._whole_from_ms = 0, NOTHING, NOTHING

    def _begins(self, offset: int, before_ms: int) -> None:
        """At an offset; what lies before it was appended at `before_ms` at the latest."""
        self._begin = offset
        since_ms = before_ms + CLOCK_SLACK_MS + 1
        self._whole_from_ms = since_ms if self._whole_from_ms == NOTHING else max(self._whole_from_ms, since_ms)
