"""Requests that lie in the backlogs, read back by their offsets.

Those of one replica lie side by side, and when it dies all of them are asked for within a moment, in no order of
theirs: one reader reads what lies around the first, and the others are found in that.
"""

from __future__ import annotations

import threading
from collections import deque

from topics.errors import Unavailable
from topics.log import BRIEFLY_MS, Log, Place, Reader, Record

AROUND = 500
MOST_BYTES = 1 << 25
POLL_S = 0.2
PATIENCE_POLLS = 50


class Requests:
    """May be asked by any thread, one after the other. Makes its client when it is first asked."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._reader: Reader | None = None
        self._near: dict[tuple[Place, int], Record] = {}

    def record(self, place: Place, offset: int) -> Record | None:
        """The record at an offset; None if there is none, or none any more. Raises Unavailable."""
        with self._lock:
            if (place, offset) not in self._near:
                self._near = {(record.place, record.offset): record for record in self._read(place, offset)}
            return self._near.get((place, offset))

    def _read(self, place: Place, offset: int) -> list[Record]:
        """What lies around the offset: as much before it as MOST_BYTES hold, and after it while they have room."""
        reader = self._reader = self._reader or self._log.reader(hold_ms=BRIEFLY_MS)
        begin, end = reader.begin(place), reader.end(place)
        if not begin <= offset < end:
            return []
        around, held, silent = deque[Record](), 0, 0
        last = min(offset + AROUND, end - 1)
        reader.add(place, max(begin, offset - AROUND))
        try:
            while silent < PATIENCE_POLLS:
                records = reader.poll(AROUND, POLL_S)
                silent += not records
                for record in records:
                    around.append(record)
                    held += len(record.value or b"")
                    while held > MOST_BYTES and around[0].offset < offset:
                        held -= len(around.popleft().value or b"")
                position = reader.position(place)
                if position > last or (position > offset and (held >= MOST_BYTES or not records)):
                    return list(around)
            raise Unavailable(f"{place} gave no record at {offset}")
        finally:
            reader.remove(place)
