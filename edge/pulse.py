"""One timer for all of an edge's streams: who has been silent for long is to be pinged, who takes nothing is cut off.

A timer for each send and each wait would cost more than the send.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

BEATS_A_TIMEOUT = 4
LONGEST_BEAT_S = 1.0


class Beaten(Protocol):
    """Who wants to hear that time goes by."""

    def beat(self, now: float) -> None:
        """`now` is the loop's time, in seconds."""


class Pulse:
    """Beats while somebody has joined, some times within the shortest of `timeouts_s`. Belongs to the loop's thread."""

    def __init__(self, *timeouts_s: float) -> None:
        self._every = min(LONGEST_BEAT_S, min(timeouts_s) / BEATS_A_TIMEOUT)
        self._joined: set[Beaten] = set()
        self._timer: asyncio.TimerHandle | None = None

    def join(self, stream: Beaten) -> None:
        self._joined.add(stream)
        if self._timer is None:
            self._wait()

    def leave(self, stream: Beaten) -> None:
        self._joined.discard(stream)

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._every, self._beat)

    def _beat(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for stream in tuple(self._joined):
            stream.beat(now)
        if self._joined:
            self._wait()
