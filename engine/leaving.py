"""When a replica is to leave: what signals have said, and how long it may still finish what it has.

SIGTERM and SIGINT give it its time; a second one ends that, and so does SIGUSR1 by itself: the machine is about to go.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

ASKS = (signal.SIGTERM, signal.SIGINT)
NOTICE = signal.SIGUSR1


class Leaving:
    """`drain_s` is the time from the first request on; `clock` tells seconds. Signals may come at any moment."""

    def __init__(self, drain_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._drain_s, self._clock = drain_s, clock
        self._until: float | None = None

    def listen(self) -> None:
        """Takes the process's signals; call it in the main thread."""
        for number in (*ASKS, NOTICE):
            signal.signal(number, self.told)

    def told(self, number: int, _frame: object = None) -> None:
        now = self._clock()
        self._until = now if number == NOTICE or self.asked else now + self._drain_s

    @property
    def asked(self) -> bool:
        return self._until is not None

    @property
    def over(self) -> bool:
        """Whether it must finish no more."""
        return self._until is not None and self._clock() >= self._until
