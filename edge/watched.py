"""A file that an operator may change while the edge runs: its bytes in, a checked value out.

It is looked at once a second at most. A file that cannot be used is reported, and the value that was stays.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0

T = TypeVar("T")


class WatchedFile(Generic[T]):
    """`read` makes the value, and raises ValueError for bytes that are none; `clock` gives seconds that only grow.

    Raises ValueError or OSError at the start.
    """

    def __init__(self, path: Path, read: Callable[[bytes], T], clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._read, self._clock = path, read, clock
        self._looked = clock()
        self._version = 0
        self._seen = self._identity()
        self._value = read(path.read_bytes())

    @property
    def value(self) -> T:
        self._look_in_time()
        return self._value

    @property
    def version(self) -> int:
        """Grows when the value changes."""
        self._look_in_time()
        return self._version

    def _look_in_time(self) -> None:
        if self._clock() - self._looked >= LOOK_EVERY_S:
            self._looked = self._clock()
            try:
                self._look()
            except (OSError, ValueError) as error:
                logger.error("%s cannot be used, what it said before stays: %s", self._path, error)

    def _look(self) -> None:
        if (identity := self._identity()) != self._seen:
            self._seen = identity
            self._value = self._read(self._path.read_bytes())
            self._version += 1

    def _identity(self) -> tuple[int, int, int]:
        status = self._path.stat()
        return status.st_mtime_ns, status.st_ino, status.st_size
