"""Windows: which time counts now, and when it counts no more."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.windows import LONGEST_MS, SLICES, Sliding, window_of, zone_of

TIMES = st.integers(1_600_000_000_000, 2_000_000_000_000)
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Africa/Cairo", "America/Havana", "Asia/Kolkata"])


def ms(*when: int, zone: str = "UTC") -> int:
    return int(datetime(*when, tzinfo=zone_of(zone)).timestamp()) * 1000  # type: ignore[misc,arg-type]


@given(now=TIMES, ago=st.integers(0, LONGEST_MS), length=st.integers(1, LONGEST_MS))
def test_a_sliding_window_forgets_nothing_early_and_all_of_it_a_slice_late(now: int, ago: int, length: int) -> None:
    window = Sliding(length)
    counts = window.bucket(now - ago) >= window.since(now)
    assert counts or ago >= length
    assert not counts or ago < length + max(1, length // SLICES)
    assert counts == (window.leaves(window.bucket(now - ago)) > now)


@given(at=TIMES, zone=ZONES, word=st.sampled_from(["day", "month"]))
def test_a_calendar_window_begins_at_the_local_midnight_and_lasts_to_the_next(at: int, zone: str, word: str) -> None:
    window = window_of(word, zone)
    start, leaves = window.bucket(at), window.leaves(window.bucket(at))
    assert start <= at < leaves
    assert (window.bucket(start), window.bucket(leaves), window.since(leaves)) == (start, leaves, leaves)
    local = [datetime.fromtimestamp(t / 1000, UTC).astimezone(zone_of(zone)) for t in (start, at, leaves)]
    assert local[0].strftime("%Y-%m") == local[1].strftime("%Y-%m")
    assert word == "day" or (local[0].day, local[2].day) == (1, 1)


@pytest.mark.parametrize(("day", "hours"), [(29, 23), (28, 24)])
def test_a_day_on_which_the_clocks_change_is_a_day(day: int, hours: int) -> None:
    start = ms(2026, 3, day, zone="Europe/Berlin")
    window = window_of("day", "Europe/Berlin")
    assert window.bucket(start + 3 * 3_600_000) == start
    assert window.leaves(start) - start == hours * 3_600_000


def test_a_day_whose_midnight_does_not_exist_begins_when_the_clocks_have_jumped() -> None:
    window, noon = window_of("day", "Africa/Cairo"), ms(2026, 4, 24, 12, zone="Africa/Cairo")
    assert window.leaves(window.bucket(noon)) - window.bucket(noon) == 23 * 3_600_000


def test_a_month_ends_with_its_last_local_day() -> None:
    window = window_of("month", "Asia/Kolkata")
    assert (
        window.leaves(window.bucket(ms(2028, 2, 10))) == ms(2028, 3, 1, zone="Asia/Kolkata") == ms(2028, 2, 29, 18, 30)
    )
    assert window.bucket(ms(2028, 2, 29, 18, 29)) == ms(2028, 2, 1, zone="Asia/Kolkata")


@pytest.mark.parametrize("text", ["", "5", "0h", "5 h", "-1h", "32d", "year", "1.5h", "99999999s", "５h"])
def test_what_is_no_window_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected 90s, 15m, 5h, 7d \(up to 31d\), day or month"):
        window_of(text, "UTC")


@pytest.mark.parametrize(
    "name", ["", "Mars/Olympus", "../zoneinfo/UTC", "Europe", "/etc/passwd", "tzdata.zi", "__init__"]
)
def test_what_is_no_time_zone_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(ValueError, match="expected a name such as UTC or Europe/Berlin"):
        window_of("day", name)
