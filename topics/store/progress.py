"""How far the store is with `turns`: one that can be read may be behind, and what it does not show may be on its way.

What the stage that saves has committed is for good in the store whose name stands beside the position; of another one,
a new one or one that was used before, nothing is known.
"""

from __future__ import annotations

import threading

from topics.log import BRIEFLY_MS, Log, Place, Reader
from topics.store.contract import SAVED_BY, Store

# Asked about a time, it looks whether this much more is saved: then the next questions are answered already.
AHEAD_MS = 4 * 60_000
AGAIN_AFTER_MS = 1_000


class Progress:
    """May be asked by any thread, one after the other. Makes its client when it is first asked. Raises Unavailable."""

    def __init__(self, log: Log, store: Store) -> None:
        self._log, self._store = log, store
        self._lock = threading.Lock()
        self._reader: Reader | None = None
        self._saved_ms: dict[Place, int] = {}
        self._again_ms: dict[Place, int] = {}

    def end(self, place: Place) -> int:
        """One past the newest record of `place`."""
        with self._lock:
            return self._asking().end(place)

    def reached(self, place: Place, offset: int) -> bool:
        """Whether all before `offset` is saved."""
        with self._lock:
            return self._position(place) >= offset

    def has_all_before(self, place: Place, at_ms: int) -> bool:
        """Whether all that came before that time is saved, and AHEAD_MS more unless that was known. Who asks goes on
        asking about later times: no is said for AGAIN_AFTER_MS of them.
        """
        with self._lock:
            if self._saved_ms.get(place, -1) >= at_ms:
                return True
            if at_ms < self._again_ms.get(place, at_ms):
                return False
            found = self._asking().offset_at(place, at_ms + AHEAD_MS)
            needed = self._asking().end(place) if found is None else found
            saved = self._position(place) >= needed
            if saved:
                self._saved_ms[place] = at_ms + AHEAD_MS
            else:
                self._again_ms[place] = at_ms + AGAIN_AFTER_MS
            return saved

    def _position(self, place: Place) -> int:
        """What the log has no more is not waited for."""
        committed = self._log.committed(SAVED_BY, place)
        saved = committed.offset if committed and committed.metadata == self._store.identity() else 0
        return max(saved, self._asking().begin(place))

    def _asking(self) -> Reader:
        self._reader = self._reader or self._log.reader(hold_ms=BRIEFLY_MS)
        return self._reader
