"""Windows of limits: a word such as `5h` or `month` to buckets of log time. Integers, milliseconds since 1970.

A sliding window is cut into SLICES buckets that lie at whole multiples of their width, and a bucket counts while any
of it is in the window: nothing is forgotten early, and all of it after at most one slice more. A calendar window has
one bucket, a local day or month. Time zones come from the pinned package `tzdata`, so that every machine agrees.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from importlib import resources
from typing import Protocol
from zoneinfo import ZoneInfo

SLICES = 60
QUARTER_MS = 15 * 60_000
LONGEST_MS = 31 * 24 * 3_600_000
CALENDAR = ("day", "month")
EXPECTED = "90s, 15m, 5h, 7d (up to 31d), day or month"

_SLIDING = re.compile(r"([1-9]\d{0,6})([smhd])", re.ASCII)
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", re.ASCII)


class Window(Protocol):
    def bucket(self, at_ms: int) -> int:
        """When the bucket of that time began."""

    def since(self, now_ms: int) -> int:
        """When the oldest bucket that counts now began."""

    def leaves(self, start_ms: int) -> int:
        """The first time at which the bucket that began then counts no more."""


@dataclass(frozen=True, slots=True)
class Sliding:
    length_ms: int

    @property
    def width_ms(self) -> int:
        return max(1, self.length_ms // SLICES)

    def bucket(self, at_ms: int) -> int:
        return at_ms - at_ms % self.width_ms

    def since(self, now_ms: int) -> int:
        return self.bucket(now_ms - self.length_ms)

    def leaves(self, start_ms: int) -> int:
        return start_ms + self.width_ms + self.length_ms


@dataclass(frozen=True, slots=True)
class Calendar:
    """Days or months as the clocks of a zone show them; one of 23 or 25 hours is a day too."""

    months: bool
    zone: ZoneInfo

    def bucket(self, at_ms: int) -> int:
        return _period(self.months, self.zone, at_ms // QUARTER_MS)[0]

    def since(self, now_ms: int) -> int:
        return self.bucket(now_ms)

    def leaves(self, start_ms: int) -> int:
        return _period(self.months, self.zone, start_ms // QUARTER_MS)[1]


@lru_cache(maxsize=4096)
def _period(months: bool, zone: ZoneInfo, quarter: int) -> tuple[int, int]:
    """When the local day or month of this quarter of an hour began and when it ends; clocks change between quarters."""
    day = datetime.fromtimestamp(quarter * QUARTER_MS // 1000, zone).date()
    if not months:
        return _midnight(day, zone), _midnight(day + timedelta(days=1), zone)
    first = day.replace(day=1)
    return _midnight(first, zone), _midnight((first + timedelta(days=32)).replace(day=1), zone)


def _midnight(day: date, zone: ZoneInfo) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()) * 1000


@lru_cache(maxsize=1024)
def window_of(text: str, time_zone: str) -> Window:
    """Raises ValueError, with what was expected."""
    if text in CALENDAR:
        return Calendar(text == "month", zone_of(time_zone))
    match = _SLIDING.fullmatch(text)
    length_ms = int(match[1]) * _UNIT_MS[match[2]] if match else 0
    if not 0 < length_ms <= LONGEST_MS:
        raise ValueError(f"window {text[:60]!r}: expected {EXPECTED}")
    return Sliding(length_ms)


@lru_cache(maxsize=1024)
def zone_of(name: str) -> ZoneInfo:
    """Raises ValueError for a name that is no time zone's."""
    try:
        if not _ZONE.fullmatch(name):
            raise FileNotFoundError(name)
        with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
            return ZoneInfo.from_file(file, name)
    except (OSError, ValueError):
        raise ValueError(f"time zone {name[:60]!r}: expected a name such as UTC or Europe/Berlin") from None
