"""How a reply's tokens come in at the edge that took its message: the first one, and the gaps between the others."""

from __future__ import annotations

import time
from collections.abc import Callable

from schemas.reply import Record
from schemas.reply_records import Tokens

Observe = Callable[[float], None]


class Pace:
    """Begins when it is made. `first` and `between` are told seconds."""

    def __init__(self, first: Observe, between: Observe, clock: Callable[[], float] = time.perf_counter) -> None:
        self._first, self._between, self._clock = first, between, clock
        self._began = clock()
        self._last: float | None = None

    def saw(self, record: Record) -> None:
        if type(record) is not Tokens:
            return
        now = self._clock()
        if self._last is None:
            self._first(now - self._began)
        else:
            self._between((now - self._last) / len(record.texts))
        self._last = now
