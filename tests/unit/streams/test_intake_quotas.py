"""Intake with limits: what is accepted, by which model, refused and told, over restarts too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas.events import ChatMessage, GenerateRequested, Sampling
from schemas.ids import UserId
from schemas.quota_records import Limit, LimitSet, Plan, PlansLoaded, UsageAsked
from schemas.reply_records import Accepted, Redirected, Rejected, UsageTold
from schemas.tokenizer import ChatTokenizer
from streams.allowances import FORGOTTEN_MS
from tests.unit.streams.intakes import Intakes, keep, loaded, restored, settled
from tests.unit.streams.staged import T0, answers, events, posted, reply_id
from tests.unit.streams.test_windows import ms

DAY = 86_400_000
HOUR_FREES, TEN_MINUTES_FREE = 3_600_000 + 60_000 - T0 % 60_000, 600_000 + 10_000 - T0 % 10_000


def plans(*limits: Limit, **fields: Any) -> PlansLoaded:
    return PlansLoaded((Plan("paid", "paid", limits, **fields),))


def tokens(most: int, model: str = "*", window: str = "1h") -> Limit:
    return Limit(model, "tokens", most, window)


@pytest.fixture
def intake(tokenizer: ChatTokenizer) -> Intakes:
    intake = Intakes(tokenizer)
    intake.ready()
    return intake


def say(intake: Intakes, n: int, at_ms: int = T0, **fields: Any) -> Any:
    """What a whole prompt of a conversation of its own is told at once."""
    message = posted(n, "", conversation=f"c{n}", client_key="", messages=(ChatMessage("user", "hello"),), **fields)
    return intake.told(message, at_ms)[reply_id(n)]


def balance(intake: Intakes, at_ms: int = T0, user: str = "alice", plan: str = "paid") -> UsageTold:
    told = intake.told(UsageAsked(UserId(user), reply_id(999), plan), at_ms)[reply_id(999)]
    assert isinstance(told, UsageTold)
    return told


def test_without_plans_nothing_is_limited_and_nothing_is_kept(intake: Intakes) -> None:
    list(intake.stage.changes())
    accepted = say(intake, 1)
    assert (accepted.quota, list(intake.stage.changes()), balance(intake).balances) == ((), [], ())


def test_whoever_asks_is_told_which_models_are_served(tokenizer: ChatTokenizer) -> None:
    told = balance(Intakes(tokenizer, mini=True), user="", plan="")
    assert (told.models, told.balances) == (("tiny", "mini"), ())


def test_the_first_request_of_a_small_limit_is_capped_and_the_second_refused(intake: Intakes) -> None:
    intake.take(plans(tokens(100)))
    first, second = say(intake, 1), say(intake, 2)
    assert (first.prompt_tokens + first.max_tokens, second.reason) == (100, "quota")
    [told] = first.quota
    assert (told.what, told.limit, told.remaining) == ("tokens", 100, 0)
    assert (second.quota, second.retry_after_ms) == (first.quota, 2_000)
    assert "100 tokens of model 'tiny' in 1h are allowed" in second.detail


def test_a_reply_takes_what_it_used_and_a_refusal_takes_nothing(intake: Intakes) -> None:
    intake.take(plans(tokens(100)))
    say(intake, 1)
    say(intake, 2)
    for _ in range(3):
        intake.take(replace(settled(posted(1)), prompt_tokens=30, completion_tokens=12), T0 + 5)
    [told] = balance(intake, T0 + 5).balances
    assert (told.used, told.reserved) == (42, 0)


def test_the_default_of_the_plan_is_reserved_where_nothing_is_asked_for(intake: Intakes) -> None:
    intake.take(plans(tokens(10_000), default_max_tokens=40))
    assert say(intake, 1).max_tokens == 40
    assert say(intake, 2, sampling=Sampling(max_tokens=90)).max_tokens == 90
    intake.take(plans(Limit("*", "requests", 10, "1h"), default_max_tokens=40))
    assert say(intake, 3).max_tokens > 90


def test_past_the_limit_the_mini_model_answers_and_says_so(tokenizer: ChatTokenizer) -> None:
    intake = Intakes(tokenizer, mini=True)
    intake.take(plans(tokens(100, "tiny"), tokens(150, "mini"), mini="mini"))
    told = [say(intake, n) for n in range(3)]
    assert [(t.model, t.pool, t.asked_model) for t in told[:2]] == [("tiny", "main", ""), ("mini", "mini", "tiny")]
    assert (told[2].reason, "'tiny'" in told[2].detail) == ("quota", True)
    assert {b.model: b.limit - b.remaining for b in balance(intake).balances} == {"tiny": 100, "mini": 150}


@pytest.mark.parametrize(
    ("tiny", "mini", "retry_after_ms"),
    [
        ((1, "1h"), (1, "10m"), TEN_MINUTES_FREE),
        ((1, "10m"), (1, "1h"), TEN_MINUTES_FREE),
        ((1, "1h"), (0, "10m"), HOUR_FREES),
        ((0, "10m"), (1, "1h"), HOUR_FREES),
        ((0, "10m"), (0, "1h"), None),
    ],
)
def test_of_two_models_that_are_used_up_the_first_that_frees_is_waited_for(
    tokenizer: ChatTokenizer, tiny: tuple[int, str], mini: tuple[int, str], retry_after_ms: int | None
) -> None:
    intake = used_up(tokenizer, Limit("tiny", "requests", *tiny), Limit("mini", "requests", *mini))
    refused = say(intake, 9)
    assert (refused.reason, refused.retry_after_ms) == ("quota", retry_after_ms)


def test_a_refusal_names_both_models_and_when_each_frees(tokenizer: ChatTokenizer) -> None:
    intake = used_up(tokenizer, Limit("tiny", "requests", 1, "1h"), Limit("mini", "requests", 1, "10m"))
    of_tiny, of_mini = say(intake, 9).detail.split("; nor can model 'mini' answer instead: ")
    assert of_tiny.startswith("1 requests of model 'tiny' in 1h are allowed: 1 are used")
    assert of_tiny.endswith(f": there may be room in {HOUR_FREES // 1_000} s")
    assert of_mini.startswith("1 requests of model 'mini' in 10m are allowed: 1 are used")
    assert of_mini.endswith(f": there may be room in {TEN_MINUTES_FREE // 1_000} s")


@pytest.mark.parametrize(
    ("most", "told"), [(1, "1 at once are allowed: there may be room when one ends"), (0, "0 at once are allowed")]
)
def test_a_refusal_of_one_more_reply_at_once_says_when_there_may_be_room(intake: Intakes, most: int, told: str) -> None:
    intake.take(plans(Limit("*", "replies", most)))
    *_, refused = (say(intake, n) for n in range(most + 1))
    assert refused.detail == f"{most} replies of model 'tiny' run for you, {told}"


def used_up(tokenizer: ChatTokenizer, *limits: Limit) -> Intakes:
    """By whole replies; past the limit of `tiny` `mini` answers."""
    intake = Intakes(tokenizer, mini=True)
    intake.take(plans(*limits, mini="mini"))
    for n in range(sum(limit.most for limit in limits)):
        assert isinstance(say(intake, n), Accepted)
        intake.take(settled(posted(n)))
    return intake


def test_the_mini_models_request_and_turn_are_its_own(tokenizer: ChatTokenizer) -> None:
    intake = Intakes(tokenizer, mini=True)
    intake.ready()
    intake.take(plans(tokens(0, "tiny"), mini="mini"))
    decision = intake.take(posted(1))
    [request] = events(decision.then, GenerateRequested)
    assert (request.model, request.pool) == ("mini", "mini")
    assert {event.model for event in events(decision.then)} == {"mini"}


def test_a_plan_whose_mini_model_is_not_served_refuses(intake: Intakes) -> None:
    intake.take(plans(tokens(0), mini="elsewhere"))
    refused = say(intake, 1)
    assert isinstance(refused, Rejected) and (refused.reason, refused.retry_after_ms) == ("quota", None)


def test_a_retry_attaches_however_much_is_used(intake: Intakes) -> None:
    intake.take(plans(Limit("*", "requests", 1, "1h"), Limit("*", "replies", 1)))
    assert isinstance(intake.told(posted(1, client_key="k"))[reply_id(1)], Accepted)
    assert intake.told(posted(2, client_key="k")) == {reply_id(2): Redirected(reply_id(1))}
    assert balance(intake).balances[0].reserved == 1


def test_a_users_own_limit_replaces_the_plans_of_its_kind(intake: Intakes) -> None:
    intake.take(plans(tokens(100), Limit("*", "requests", 1, "1h")))
    intake.take(LimitSet(UserId("alice"), (Limit("*", "requests", 5, "day"),), "Asia/Tokyo"))
    told = balance(intake)
    assert [(b.what, b.limit, b.window) for b in told.balances] == [("tokens", 100, "1h"), ("requests", 5, "day")]
    assert (told.time_zone, balance(intake, user="bob").time_zone) == ("Asia/Tokyo", "UTC")
    intake.take(LimitSet(UserId("alice"), ()))
    assert [b.limit for b in balance(intake).balances] == [100, 1]


def test_plans_of_two_time_zones_each_count_their_own_days(intake: Intakes, tokenizer: ChatTokenizer) -> None:
    limits = (Limit("*", "requests", 5, "day"),)
    intake.take(PlansLoaded((Plan("paid", "paid", limits), Plan("far", "paid", limits, time_zone="Asia/Tokyo"))))
    evening, changelog = ms(2026, 3, 10, 23), dict[str, bytes | None]()
    for n, plan in enumerate(("paid", "far", "paid")):
        say(intake, n, evening, plan=plan)
        intake.take(settled(posted(n)), evening)
    keep(changelog, intake.stage.changes())
    intake.stage = restored(tokenizer, changelog)
    days = [balance(intake, evening, plan=plan).balances[0] for plan in ("paid", "far")]
    assert [(day.used, day.reset_ms) for day in days] == [(3, ms(2026, 3, 11)), (2, ms(2026, 3, 11, 15))]


def test_a_plan_that_is_not_there_is_the_free_one(intake: Intakes) -> None:
    intake.take(PlansLoaded((Plan("free", "free", (tokens(50),)), Plan("gold", "paid", (tokens(500),)))))
    assert [say(intake, 1, plan="no such").tier, say(intake, 2, plan="gold").tier] == ["free", "paid"]
    assert balance(intake, plan="").plan == "gold"


@pytest.mark.parametrize(
    "changed",
    [
        plans(tokens(5, window="fortnight")),
        plans(Limit("*", "words", 5, "1h")),
        plans(tokens(-1)),
        plans(Limit("*", "replies", 1, "1h")),
        plans(time_zone="Mars/Olympus"),
        LimitSet(UserId("alice"), (tokens(1),) * 300),
    ],
)
def test_limits_that_nobody_can_reckon_with_are_put_aside_and_change_nothing(intake: Intakes, changed: object) -> None:
    intake.take(plans(tokens(100)))
    with pytest.raises(ValueError, match="expected"):
        intake.take(changed)
    assert [b.limit for b in balance(intake).balances] == [100]


def test_quotas_come_back_from_the_changelog(intake: Intakes, tokenizer: ChatTokenizer) -> None:
    changelog: dict[str, bytes | None] = {}
    intake.take(plans(tokens(300)))
    intake.take(LimitSet(UserId("alice"), (Limit("*", "replies", 3),)))
    say(intake, 1)
    keep(changelog, intake.stage.changes())
    again = Intakes(tokenizer)
    again.stage = restored(tokenizer, changelog)
    assert balance(again) == balance(intake)
    assert list(again.stage.changes()) == []


def test_quotas_are_forgotten_when_no_window_can_remember_them_but_own_limits_stay(intake: Intakes) -> None:
    intake.take(plans(tokens(300, window="month")))
    say(intake, 1)
    intake.take(LimitSet(UserId("bob"), (tokens(7),)))
    list(intake.stage.changes())
    intake.take(loaded("carol"), T0 + FORGOTTEN_MS)
    changed = {change.key: change.event for change in intake.stage.changes() if change.key.endswith(":quota")}
    assert changed["alice/:quota"] is None
    assert balance(intake, T0 + FORGOTTEN_MS, "bob").balances[0].limit == 7


def test_a_message_that_waited_reserves_when_it_is_accepted(intake: Intakes) -> None:
    intake.take(plans(Limit("*", "requests", 2, "1h")))
    intake.take(posted(1))
    assert intake.told(posted(2)) == {}
    assert balance(intake).balances[0].reserved == 1
    assert isinstance(answers(intake.take(settled(posted(1)), T0 + 9))[reply_id(2)], Accepted)
    assert [(b.used, b.reserved) for b in balance(intake, T0 + 9).balances] == [(1, 1)]
