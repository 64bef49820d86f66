"""Requests that lie in the backlogs, read back by their offsets.

Those of one replica lie side by side, and when it dies all of them are asked for within a moment: one reader serves
them, and keeps what came with the last that it read.
"""

from __future__ import annotations

import threading

from topics.errors import Unavailable
from topics.log import Log, Place, Reader, Record

READ_AHEAD = 500
POLL_S = 0.2
POLLS = 50


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
        """Of what lies from the offset on as much as comes at once."""
        reader = self._reader = self._reader or self._log.reader()
        if not reader.begin(place) <= offset < reader.end(place):
            return []
        reader.add(place, offset)
        try:
            for _ in range(POLLS):
                if records := reader.poll(READ_AHEAD, POLL_S):
                    return records
                if reader.position(place) > offset:
                    return []
            raise Unavailable(f"{place} gave no record at {offset}")
        finally:
            reader.remove(place)
