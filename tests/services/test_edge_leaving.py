"""An edge is told to leave: whatever its clients are at, each gets something that it can go on with at the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from signal import SIGTERM

import pytest

from schemas.ids import ReplyId
from tests.services.client import Client, frames_of, ids_of, text_of
from tests.services.records import Records
from tests.services.running import MendedStack, until

EDGES = (0, 1)
TEXT = "word " * 300
PATH = "/v1/chat/completions"
STREAMS = 3


@contextlib.contextmanager
def leaving(paced: MendedStack, edge: int) -> Iterator[None]:
    """SIGTERM at the beginning; at the end it has left by itself, without a complaint, and starts again."""
    name = f"edge-{edge}"
    process = paced.process(name)
    process.send(SIGTERM)
    try:
        yield
        until(lambda: process.exit_status() is not None)
        assert process.exit_status() == 0
    finally:
        paced.restart(name)


def to_its_end(user: Client, reply: ReplyId, edge: int) -> bytes:
    """All that one connection brings, byte for byte."""
    with user.http.stream("GET", f"{user.stack.urls[edge]}/v1/replies/{reply}/events") as answer:
        return b"".join(answer.iter_raw())


@pytest.mark.parametrize("edge", EDGES)
def test_streams_say_when_to_come_back_and_go_on_at_the_other_edge_byte_for_byte(
    paced: MendedStack, wendy: Client, paced_log: Records, edge: int
) -> None:
    replies = [wendy.say(f"edge-left-{edge}-{n}", TEXT, edge) for n in range(STREAMS)]
    with ThreadPoolExecutor(STREAMS) as pool:
        heard = [pool.submit(to_its_end, wendy, reply, edge) for reply in replies]
        paced.until(lambda: all(paced_log.replies()[reply].last > 10 for reply in replies))
        paced.until(lambda: wendy.gauge("laneway_edge_streams", edge) >= STREAMS)
        with leaving(paced, edge):
            bodies = [one.result() for one in heard]
    for reply, body in zip(replies, bodies, strict=True):
        assert body.endswith(b"\n\nretry: 500\n")
        before = list(frames_of([body]))
        after = wendy.follow(reply, 1 - edge, cursor=ids_of(before)[-1])
        assert before + after == wendy.follow(reply, 1 - edge)
        assert text_of(before + after) == TEXT


@pytest.mark.parametrize("edge", EDGES)
def test_completions_say_that_their_edge_leaves_and_are_there_at_the_other(
    paced: MendedStack, wendy: Client, paced_log: Records, edge: int
) -> None:
    body = {"messages": [{"role": "user", "content": TEXT}]}
    key, before = {"Idempotency-Key": f"edge-left-{edge}"}, paced_log.ends("messages")
    with ThreadPoolExecutor(2) as pool:
        whole = pool.submit(wendy.ask, "POST", PATH, edge, json=body, headers=key)
        stream = pool.submit(wendy.ask, "POST", PATH, edge, json={**body, "stream": True})
        paced.until(lambda: sum(begun(paced_log, posted.reply) for posted in paced_log.posted(before)) == 2)
        with leaving(paced, edge):
            refused = whole.result()
            again = wendy.ask("POST", PATH, 1 - edge, json=body, headers=key)
            broken = stream.result()
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
    assert int(refused.headers["Retry-After"]) >= 1
    assert broken.text.count('"content":" word"') > 3
    assert broken.text.rpartition("data: ")[2].startswith('{"error":{"message":"this edge is leaving')
    assert again.json()["choices"][0]["message"]["content"] == TEXT
    first = ReplyId(refused.headers["X-Request-Id"])
    assert again.json()["id"] == first or paced_log.replies()[first].reason == "abandoned"  # it came back too late


def begun(log: Records, reply: ReplyId) -> bool:
    return reply in log.replies() and log.replies()[reply].last > 10


@pytest.mark.parametrize("edge", EDGES)
def test_a_message_that_is_being_posted_is_answered_before_its_edge_goes(
    paced: MendedStack, wendy: Client, paced_log: Records, edge: int
) -> None:
    before, key = paced_log.ends("messages"), f"edge-left-posting-{edge}"
    with ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as left:
        with paced.without("intake"):
            post = pool.submit(wendy.post, key, "hello", edge, key)
            paced.until(lambda: len(paced_log.posted(before)) == 1)
            left.enter_context(leaving(paced, edge))
        answer = post.result()
    again = wendy.post(key, "hello", 1 - edge, key)
    assert text_of(wendy.follow(again.json()["reply"], 1 - edge)) == "hello"
    if answer.status_code == 202:
        assert answer.json()["reply"] == again.json()["reply"]
    else:
        assert (answer.status_code, "same Idempotency-Key" in answer.json()["error"]["message"]) == (503, True)
