"""Quotas at the edge: headers of every kind of answer, refusals, the mini model, and the balances."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edge.rates import rate_headers
from schemas import reply_records as r
from schemas.ids import UserId
from schemas.quota_records import Balance, UsageAsked
from tests.unit.edge.running_edge import RunningEdge, accepted, finished, started, tokens, wait_for

NOW = 1_700_000_000_000
REQUESTS = Balance("m1", "requests", "1m", 20, 3, 1, NOW + 61_000)
TOKENS = Balance("m1", "tokens", "5h", 1000, 300, 200, NOW + 3_723_000)
COMPLETION = {"model": "m1", "messages": [{"role": "user", "content": "hi"}]}


def rates_of(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items() if "ratelimit" in name.lower()}


def told(**fields: Any) -> r.Rejected:
    return r.Rejected("quota", "used up", **{"quota": (TOKENS,)} | fields)


def test_each_kind_of_limit_has_its_three_headers() -> None:
    assert rate_headers(told(quota=(REQUESTS, TOKENS), retry_after_ms=1_500), NOW) == {
        "x-ratelimit-limit-requests": "20",
        "x-ratelimit-remaining-requests": "16",
        "x-ratelimit-reset-requests": "1m1s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "500",
        "x-ratelimit-reset-tokens": "1h2m3s",
        "retry-after-ms": "1500",
    }


@pytest.mark.parametrize(
    ("reset_ms", "shown"),
    [(0, "0s"), (NOW - 5, "0s"), (NOW + 20, "20ms"), (NOW + 1_001, "2s"), (NOW + 3_600_000, "1h0m0s")],
)
def test_a_reset_is_written_as_openai_writes_it(reset_ms: int, shown: str) -> None:
    headers = rate_headers(told(quota=(replace(REQUESTS, reset_ms=reset_ms),)), NOW)
    assert headers["x-ratelimit-reset-requests"] == shown


@pytest.mark.parametrize(
    ("after_ms", "retry_after", "in_ms", "should"),
    [
        (1_500, "2", "1500", None),
        (120_000, "120", "120000", None),
        (120_001, "121", "120001", "false"),
        (None, None, None, "false"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/conversations/c1/messages", "/v1/chat/completions"])
def test_a_refusal_says_when_to_come_again_and_whether_at_all(
    edge: RunningEdge, path: str, after_ms: int | None, retry_after: str | None, in_ms: str | None, should: str | None
) -> None:
    edge.script = lambda _: [told(retry_after_ms=after_ms)]
    with edge.client() as client:
        answer = client.post(path, json=COMPLETION if "chat" in path else {"text": "hi"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "quota")
    names = ("retry-after", "retry-after-ms", "x-should-retry")
    assert tuple(map(answer.headers.get, names)) == (retry_after, in_ms, should)
    assert rates_of(answer.headers)["x-ratelimit-remaining-tokens"] == "500"


@pytest.mark.parametrize("stream", [False, True])
def test_answers_that_succeed_have_them_too_whole_and_streamed(edge: RunningEdge, stream: bool) -> None:
    edge.script = lambda p: [replace(accepted(p), quota=(REQUESTS, TOKENS)), started(), tokens(1, "a"), finished(1)]
    posted = edge.post(Accept="text/event-stream") if stream else edge.post()
    with edge.client() as client:
        completed = client.post("/v1/chat/completions", json=COMPLETION | {"stream": stream})
    for answer, status in ((posted, 200 if stream else 202), (completed, 200)):
        assert answer.status_code == status
        assert len(rates_of(answer.headers)) == 6


def test_without_limits_there_are_none(edge: RunningEdge) -> None:
    answer = edge.post()
    assert (answer.status_code, rates_of(answer.headers)) == (202, {})


def test_that_the_mini_model_answers_is_said_in_every_answer(edge: RunningEdge) -> None:
    edge.script = lambda p: [replace(accepted(p), model="m2", asked_model="m1"), started(), tokens(1, "a"), finished(1)]
    answer = edge.post()
    assert (answer.json()["model"], answer.json()["asked_model"]) == ("m2", "m1")
    assert answer.headers["x-laneway-asked-model"] == "m1"
    with edge.client() as client:
        assert '"model":"m2","asked_model":"m1"' in client.get(answer.json()["url"]).text
        completed = client.post("/v1/chat/completions", json=COMPLETION)
    assert (completed.json()["model"], completed.headers["x-laneway-asked-model"]) == ("m2", "m1")


def answering(edge: RunningEdge, answer: r.UsageTold) -> Any:
    """The balances that the edge gives when intake says this."""
    edge.told = lambda _: [answer]
    with edge.client() as client:
        return client.get("/v1/usage")


def test_balances_are_asked_of_intake_and_shown_as_they_stand(edge: RunningEdge) -> None:
    running = Balance("m1", "replies", "", 2, 0, 1, 0)
    answer = answering(edge, r.UsageTold(UserId("alice"), "free", "Europe/Berlin", (TOKENS, running)))
    body = answer.json()
    assert (answer.status_code, body["plan"], body["time_zone"]) == (200, "free", "Europe/Berlin")
    first, second = body["limits"]
    assert (first["used"], first["reserved"], first["remaining"], first["reset_ms"]) == (300, 200, 500, TOKENS.reset_ms)
    assert (second["window"], second["reset_ms"]) == (None, None)
    [asked] = [event for event in edge.messages() if isinstance(event, UsageAsked)]
    assert (asked.user, asked.plan) == ("alice", "free")


def test_another_users_balances_are_never_shown(edge: RunningEdge) -> None:
    assert answering(edge, r.UsageTold(UserId("bob"), "free", "UTC", (TOKENS,))).status_code == 500


def test_balances_that_nobody_tells_are_503(tmp_path: Any) -> None:
    with RunningEdge(tmp_path, accept_timeout=0.05) as edge:
        edge.told = lambda _: []
        with edge.client() as client:
            answer = client.get("/v1/usage")
        wait_for(lambda: edge.messages())
    assert (answer.status_code, "ask again" in answer.json()["error"]["message"]) == (503, True)
