"""What was read of a partition of the reply log not long ago: who resumes one of its replies waits for no broker.

It is all that lies there from the offset `begin` on, as far as it was read. Which replies are whole in it is told by
time: a record is not older than its reply, but for the clocks' disagreement, so of a reply that was made well after
the records before `begin` nothing is missing. Beyond a number of bytes the oldest records are let go of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from schemas.ids import ReplyId, created_ms
from topics.catalog import SECOND
from topics.log import Headers, Record
from topics.subscription import Source

CLOCK_SLACK_MS = 10 * SECOND
LINE_BYTES = 350  # of a record's objects and key, beside its value
UNKNOWN_MS = 1 << 62

# A record less its place. A plain tuple of plain values, which the garbage collector does not look at again.
Line: TypeAlias = tuple[int, int, bytes | None, bytes | None, Headers]


class Recent:
    """From `begin` on; what lies before it was appended at `before_ms` at the latest. Its owner guards it."""

    def __init__(self, begin: int, before_ms: int = UNKNOWN_MS) -> None:
        self.begin = begin
        self._whole_from_ms = before_ms + CLOCK_SLACK_MS + 1
        self._lines: deque[Line] = deque()
        self._value_bytes = 0
        self._has_begun = False

    @property
    def size(self) -> int:
        """In bytes, about."""
        return self._value_bytes + LINE_BYTES * len(self._lines)

    def add(self, record: Record) -> None:
        """The next record of the partition."""
        if not self._has_begun:
            self._has_begun = True
            self._whole_from_ms = min(self._whole_from_ms, record.timestamp_ms + CLOCK_SLACK_MS + 1)
        self._lines.append(record[1:])
        self._value_bytes += len(record.value or b"")

    def add_older(self, read: Sequence[Record], end: int, whole_from_ms: int) -> None:
        """All that lies between the first record of the moment `whole_from_ms` less the clocks' slack and `end`; of no
        use if `begin` has moved past that."""
        if end < self.begin:
            return
        older: list[Line] = [record[1:] for record in read if record.offset < self.begin]
        self._lines.extendleft(reversed(older))
        self._value_bytes += sum(len(line[3] or b"") for line in older)
        self.begin = older[0][0] if older else self.begin
        self._whole_from_ms = min(self._whole_from_ms, whole_from_ms)

    def of(self, source: Source) -> list[Record]:
        """Every record of a reply that is kept."""
        place, key = source
        return [Record(place, *line) for line in self._lines if line[2] is not None and line[2].startswith(key)]

    def has_all(self, reply: ReplyId) -> bool:
        """Whether nothing of the reply lies before `begin`."""
        return created_ms(reply) >= self._whole_from_ms

    def shrink(self, most_bytes: int) -> None:
        while self.size > most_bytes:
            offset, timestamp_ms, _, value, _ = self._lines.popleft()
            self._value_bytes -= len(value or b"")
            self.begin = offset + 1
            self._whole_from_ms = max(self._whole_from_ms, timestamp_ms + CLOCK_SLACK_MS + 1)


@dataclass(eq=False, slots=True)
class Followed:
    """A partition that `live` is to read from `position` on; `since_s` is when its last reader went or came."""

    position: int
    recent: Recent
    home: bool = False
    readers: int = 0
    since_s: float = 0.0
