"""The quota ledger by examples: what is granted, refused, and when it may be asked again."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.quota_records import Balance, Bucket, Ledger, Limit, Spent
from streams.quota import LOST_MS, RUNNING_RETRY_MS, Granted, Rules, Short, balances, charge, reserve, settle
from tests.unit.streams.ledgers import T, end, only, request
from tests.unit.streams.staged import reply_id
from tests.unit.streams.test_windows import ms

HOUR = 3_600_000
EMPTY = Ledger("m")


def rules(*limits: tuple[str, int, str], zone: str = "UTC") -> Rules:
    return Rules(tuple(Limit("m", *limit) for limit in limits), zone)


def granted(ledger: Ledger, held: Rules, now: int = T, **fields: Any) -> Granted:
    found = reserve(ledger, held, request(**fields), now)
    assert isinstance(found, Granted), found
    return found


def refused(ledger: Ledger, held: Rules, now: int = T, **fields: Any) -> Short:
    found = reserve(ledger, held, request(**fields), now)
    assert isinstance(found, Short), found
    return found


def test_the_prompt_and_what_was_asked_for_are_reserved_and_what_was_used_is_kept() -> None:
    held = rules(("tokens", 100, "1h"))
    ledger, told = (found := granted(EMPTY, held, input=30, asked=50)).ledger, found.balances
    assert (
        only(told)
        == only(balances(ledger, held, T))
        == Balance("m", "tokens", "1h", 100, 0, 80, T + HOUR + 60_000 - T % 60_000)
    )
    ledger = settle(ledger, held, end(1, prompt=30, completion=7), T + 5)
    assert (only(balances(ledger, held, T + 5)).used, ledger.open) == (37, ())


def test_who_asks_for_no_max_tokens_gets_what_is_left() -> None:
    held = rules(("tokens", 100, "1h"))
    assert granted(EMPTY, held, input=30, asked=0, most=500).max_tokens == 70
    assert granted(EMPTY, held, input=30, asked=0, most=20).max_tokens == 20
    assert granted(EMPTY, rules(("output", 9, "1h"), ("tokens", 50, "day")), input=30, asked=0).max_tokens == 9


@pytest.mark.parametrize(("asked", "fits"), [(70, True), (71, False)])
def test_what_does_not_fit_is_refused(asked: int, fits: bool) -> None:
    found = reserve(EMPTY, rules(("tokens", 100, "1h")), request(input=30, asked=asked), T)
    assert isinstance(found, Granted) == fits


def test_more_than_the_limit_never_fits() -> None:
    short = refused(EMPTY, rules(("input", 29, "1h")), input=30)
    assert (short.needed, short.retry_after_ms, short.balance.what) == (30, None, "input")


def test_behind_a_running_reply_it_may_be_asked_again_soon() -> None:
    held = rules(("tokens", 100, "1h"))
    ledger = granted(EMPTY, held, input=30).ledger
    assert refused(ledger, held, n=2, input=30).retry_after_ms == RUNNING_RETRY_MS


def test_after_what_was_used_it_may_be_asked_again_when_enough_has_left() -> None:
    held = rules(("requests", 2, "1h"))
    ledger = EMPTY
    for n, at in enumerate((T, T + 600_000)):
        ledger = settle(granted(ledger, held, at, n=n).ledger, held, end(n), at + 1)
    short = refused(ledger, held, T + 700_000, n=3)
    assert short.retry_after_ms
    at = T + 700_000 + short.retry_after_ms
    assert isinstance(reserve(ledger, held, request(n=3), at), Granted)
    assert isinstance(reserve(ledger, held, request(n=3), at - 1), Short)


def test_the_limit_that_lasts_longest_is_named() -> None:
    held = rules(("requests", 1, "1m"), ("requests", 1, "day"), ("requests", 1, "1h"))
    ledger = settle(granted(EMPTY, held).ledger, held, end(1), T + 1)
    assert refused(ledger, held, T + 2, n=2).balance.window == "day"


def test_replies_at_once_are_counted_until_they_end_whatever_their_end() -> None:
    held = rules(("replies", 2, ""))
    ledger = granted(granted(EMPTY, held, n=1).ledger, held, n=2).ledger
    short = refused(ledger, held, n=3)
    assert (short.balance.reserved, short.retry_after_ms) == (2, RUNNING_RETRY_MS)
    ledger = settle(ledger, held, end(1, state="failed", completion=0), T + 1)
    assert isinstance(reserve(ledger, held, request(n=3), T + 1), Granted)


def test_a_reply_whose_end_is_never_told_is_released_when_nobody_can_tell_it_any_more() -> None:
    rest = rules(("tokens", 100, "day"))
    held = rules(("tokens", 100, "day"), ("replies", 1, ""))
    ledger = granted(EMPTY, held, T - T % 86_400_000, input=30).ledger
    at = T - T % 86_400_000 + LOST_MS
    assert isinstance(reserve(ledger, held, request(n=2), at), Short)
    assert isinstance(reserve(ledger, held, request(n=2), at + 1), Granted)
    assert only(balances(settle(ledger, rest, end(1), at + 1), rest, at + 1)).used == 0


@pytest.mark.parametrize(
    ("state", "completion", "percent", "cost"),
    [
        ("finished", 0, 100, (1, 10, 0)),
        ("stopped", 3, 100, (1, 10, 3)),
        ("failed", 3, 0, (1, 6, 3)),
        ("failed", 0, 100, (0, 0, 0)),
        ("shed", 0, 100, (0, 0, 0)),
        ("finished", 3, 10, (1, 7, 3)),
    ],
)
def test_a_reply_costs_what_it_used_and_nothing_if_it_gave_nothing(
    state: str, completion: int, percent: int, cost: tuple[int, int, int]
) -> None:
    assert charge(end(1, state=state, prompt=10, cached=4, completion=completion), percent) == cost


def test_a_settlement_of_nonsense_takes_nothing_back() -> None:
    assert charge(end(1, prompt=-5, cached=9, completion=-7), 100) == (1, 0, 0)


def test_the_same_message_twice_reserves_once() -> None:
    held = rules(("tokens", 100, "1h"))
    twice = granted(granted(EMPTY, held, input=30).ledger, held, input=30).ledger
    assert [reserved.reply for reserved in twice.open] == [reply_id(1)]


def test_the_days_of_two_zones_are_two_windows() -> None:
    utc, tokyo = (rules(("requests", 5, "day"), zone=zone) for zone in ("UTC", "Asia/Tokyo"))
    ledger, evening, midnight = EMPTY, ms(2026, 3, 10, 23), ms(2026, 3, 11)
    for n, held in enumerate((utc, tokyo, utc)):
        ledger = settle(granted(ledger, held, evening, n=n).ledger, held, end(n), evening)
    days = [only(balances(ledger, held, evening)) for held in (utc, tokyo)]
    assert [(day.used, day.reset_ms) for day in days] == [(3, midnight), (2, ms(2026, 3, 11, 15))]
    assert [only(balances(ledger, held, midnight)).used for held in (utc, tokyo)] == [0, 2]


def test_a_sliding_window_is_the_same_in_every_zone() -> None:
    utc, tokyo = (rules(("requests", 5, "5h"), zone=zone) for zone in ("UTC", "Asia/Tokyo"))
    ledger = settle(granted(EMPTY, utc).ledger, utc, end(1), T + 1)
    assert only(balances(ledger, tokyo, T + 2)).used == 1


def test_a_day_that_was_kept_before_days_had_a_zone_is_of_the_zone_that_holds() -> None:
    berlin, noon = rules(("requests", 5, "day"), zone="Europe/Berlin"), ms(2026, 3, 10, 12)
    kept = Ledger("m", (Spent("day", (Bucket(ms(2026, 3, 10, zone="Europe/Berlin"), 2, 0, 0),)),))
    ledger = settle(granted(kept, berlin, noon).ledger, berlin, end(1), noon)
    assert only(balances(ledger, berlin, noon)).used == 3
