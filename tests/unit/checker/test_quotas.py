"""The checker reckons quotas again, and finds each balance that is wrong and each limit that is not kept."""

from dataclasses import replace
from typing import Any

import pytest

from schemas import reply_records as r
from schemas.events import ReplySettled
from schemas.quota_records import Balance, Limit, Plan, PlansLoaded, UsageAsked
from tests.checker.history import History
from tests.checker.ledger import Moment, counts
from tests.checker.rules import check
from tests.unit.checker.histories import LIFE, POSTS, REFUSED, REPLY, clean, entries
from tests.unit.streams.staged import T0, accepted, reply_id
from topics.catalog import MESSAGES, REPLIES

ASKED, EARLY = reply_id(8), reply_id(9)
ALICE, BOB = POSTS[0].user, POSTS[2].user
SETTLED = ReplySettled(ALICE, POSTS[0].conversation, REPLY, "finished", 5, 0, 4, None)
SEVENTH_MS = 7 * 24 * 3_600_000


def told(used: int, reserved: int, most: int = 20, requests: tuple[int, int] = (1, 0)) -> r.UsageTold:
    balances = (
        Balance("tiny", "tokens", "7d", most, used, reserved, 0),
        Balance("tiny", "requests", "7d", 1, *requests, 0),
    )
    return r.UsageTold(ALICE, "paid", "UTC", balances)


def limited(most: int = 20, requests: int = 1, **wrong: Any) -> History:
    """Alice has a limit of tokens and Bob, whose message is refused, one of requests. She asks at the end."""
    of_alice = Plan("paid", "paid", (Limit("*", "tokens", most, "7d"), Limit("*", "requests", 1, "7d")))
    of_bob = Plan("free", "free", (Limit("*", "requests", requests, "7d"),))
    posts = (*POSTS[:2], replace(POSTS[2], plan="free"))
    ends = wrong.get("ends", (SETTLED, SETTLED))
    messages = [PlansLoaded((of_alice, of_bob)), *posts, *ends, UsageAsked(ALICE, ASKED, "paid")]
    life = dict(LIFE) | {REFUSED: wrong.get("refusal", r.Rejected("unsafe"))}
    replies = [(reply, life[reply] if reply == REFUSED else record) for reply, record in LIFE]
    replies[0] = (REPLY, accepted(REPLY, max_tokens=4, **wrong.get("accepted", {})))
    answers = wrong.get("answers", [told(9, 0, most)])
    replies += [(ASKED, answer) for answer in answers]
    others = tuple(entry for entry in clean().entries if entry.place.topic not in (MESSAGES, REPLIES))
    return replace(
        clean(), entries=others + entries(MESSAGES, *(("", m) for m in messages)) + entries(REPLIES, *replies)
    )


def rules(history: History) -> set[str]:
    return {violation.rule for violation in check(history)}


def test_a_ledger_that_is_the_sum_of_the_usage_records_passes_however_often_an_end_was_told() -> None:
    assert rules(limited()) == set()


@pytest.mark.parametrize("balance", [(8, 0), (10, 0), (18, 0), (9, 9), (0, 9)])
def test_a_balance_that_is_another_sum_is_found(balance: tuple[int, int]) -> None:
    assert rules(limited(answers=[told(*balance)])) == {"balance"}


def test_a_question_without_an_answer_or_before_the_last_end_is_found() -> None:
    assert rules(limited(answers=[])) == {"usage asked"}
    assert rules(limited(ends=(), answers=[told(0, 9, requests=(0, 1))])) == {"settled", "usage asked"}


@pytest.mark.parametrize("wrong", [{"completion_tokens": 3}, {"cached_tokens": 1}, {"state": "failed"}])
def test_an_end_that_is_told_otherwise_than_the_usage_record_is_found(wrong: dict[str, Any]) -> None:
    assert rules(limited(ends=(SETTLED, replace(SETTLED, **wrong)))) == {"settled"}


def test_a_limit_that_is_overrun_is_found() -> None:
    assert rules(limited(most=9)) == set()
    assert rules(limited(most=8)) == {"overrun"}


def test_a_balance_of_another_limit_than_the_one_that_holds_is_found() -> None:
    assert rules(limited(answers=[told(9, 0, most=21)])) == {"limits"}


def test_a_refusal_without_a_limit_that_is_met_is_found() -> None:
    refusal = r.Rejected("quota")
    assert rules(limited(requests=0, refusal=refusal)) == set()
    assert rules(limited(requests=1, refusal=refusal)) == {"refused"}


def test_a_mini_model_that_no_plan_names_or_no_limit_called_for_is_found() -> None:
    assert rules(limited(accepted={"asked_model": "tiny", "model": "mini"})) >= {"mini"}
    assert rules(limited(accepted={"model": "mini"})) >= {"mini"}


def test_a_window_is_as_long_as_its_name_and_no_slice_longer() -> None:
    then = Moment(0, 0, T0, T0)
    for later_ms, counted in ((0, True), (SEVENTH_MS, True), (SEVENTH_MS + SEVENTH_MS // 60, False)):
        now = Moment(1, 1, T0 + later_ms, T0 + later_ms)
        assert counts("7d", then, now) == (counted, counted)
    vague = Moment(0, 0, T0 - SEVENTH_MS // 30, T0)
    assert counts("7d", vague, Moment(1, 1, T0 + SEVENTH_MS, T0 + SEVENTH_MS)) == (False, True)
