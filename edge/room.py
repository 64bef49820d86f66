"""Memory that many share: each holds a little for free, and what it has beyond that comes out of one bounded room.

So whoever asks for little is served however much others hold, and all together hold at most `free` for each and `most`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

FREE_BYTES = 16 * 1024
MOST_BYTES = 64 * 1024 * 1024


class Room:
    """`held` bytes of the `most` are in use."""

    def __init__(self, most: int = MOST_BYTES, free: int = FREE_BYTES) -> None:
        self.most, self.free = most, free
        self.held = 0

    @contextlib.contextmanager
    def share(self) -> Iterator[Share]:
        share = Share(self)
        try:
            yield share
        finally:
            share.close()


class Share:
    """One holder's part; once closed it holds nothing any more."""

    def __init__(self, room: Room) -> None:
        self._room, self._taken, self._closed = room, 0, False

    def fits(self, size: int) -> bool:
        """Sets what it holds; False, and nothing changes, where the room has no more. Less always fits."""
        taken = 0 if self._closed else max(0, size - self._room.free)
        more = taken - self._taken
        if more > 0 and self._room.held + more > self._room.most:
            return False
        self._room.held += more
        self._taken = taken
        return True

    def close(self) -> None:
        self._closed = True
        self.fits(0)
