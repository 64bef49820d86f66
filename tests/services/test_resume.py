"""A stream that breaks goes on anywhere: byte for byte what an undisturbed reader hears, whatever the cursor."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import orjson
import pytest

from schemas.ids import ReplyId
from tests.services.client import Client, event_of, id_of, ids_of, text_of
from tests.services.running import MendedStack
from tests.stack import Stack

TOKENS = 60
TEXT = "word " * 80
BAD_CURSORS = [
    b"abc", b"-1", b"1e9", b"", b"9" * 10_240, "\u0663".encode(), b"5; id", b"3.0", b"+1", b"0x1", b"1 2", b"\xff",
    str(TOKENS + 2).encode(),
]  # fmt: skip


@pytest.fixture(scope="module")
def ended(stack: Stack) -> Iterator[tuple[ReplyId, list[bytes]]]:
    """A reply of 60 tokens, and the frames of an undisturbed stream at the first edge."""
    with Client(stack) as client:
        reply = client.say("resumed", TEXT, max_tokens=TOKENS)
        yield reply, client.follow(reply)


def after(frames: list[bytes], cursor: int) -> bytes:
    """What is left of an undisturbed stream after event `cursor`."""
    at = next(index for index, frame in enumerate(frames) if id_of(frame) == cursor)
    return b"".join(frames[at + 1 :])


def test_a_stream_cut_anywhere_goes_on_at_the_other_edge(alice: Client, ended: tuple[ReplyId, list[bytes]]) -> None:
    reply, frames = ended
    assert ids_of(frames) == list(range(TOKENS + 2))
    for cursor in range(TOKENS + 1):
        answer = alice.ask("GET", f"/v1/replies/{reply}/events", edge=1, headers={"Last-Event-ID": str(cursor)})
        assert answer.content == after(frames, cursor), cursor


def test_a_client_that_has_seen_the_end_is_told_so(alice: Client, ended: tuple[ReplyId, list[bytes]]) -> None:
    for edge in (0, 1):
        seen = {"Last-Event-ID": str(TOKENS + 1)}
        answer = alice.ask("GET", f"/v1/replies/{ended[0]}/events", edge, headers=seen)
        assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("cursor", BAD_CURSORS, ids=lambda cursor: ascii(cursor[:8]))
def test_a_bad_cursor_is_one_clear_400(alice: Client, ended: tuple[ReplyId, list[bytes]], cursor: bytes) -> None:
    status, body = alice.raw_get(f"/v1/replies/{ended[0]}/events", b"Last-Event-ID: " + cursor)
    assert status == 400
    error = orjson.loads(body)["error"]
    assert error["param"] == "Last-Event-ID"
    assert error["message"].startswith("Last-Event-ID=")


def test_three_readers_at_once_hear_the_same(alice: Client) -> None:
    reply = alice.say("three-readers", TEXT)
    with ThreadPoolExecutor(3) as pool:
        first, *others = pool.map(lambda edge: alice.follow(reply, edge), (0, 1, 0))
    assert others == [first, first]
    assert text_of(first) == TEXT


def test_a_reply_is_found_at_every_edge_the_moment_it_is_accepted(alice: Client) -> None:
    with ThreadPoolExecutor(2) as pool:
        for n in range(10):
            reply = alice.say(f"at-once-{n}", f"hello {n}", edge=n % 2)
            heard = pool.map(lambda edge, reply=reply: text_of(alice.follow(reply, edge)), (0, 1))
            assert list(heard) == [f"hello {n}"] * 2


def test_five_drops_in_one_running_reply_lose_and_double_nothing(wendy: Client) -> None:
    reply, heard = wendy.say("five-drops", TEXT), list[bytes]()
    for drop in range(1, 6):
        with wendy.stream(reply, drop % 2, max(ids_of(heard), default=None)) as frames:
            while len(ids_of(heard)) < 12 * drop:
                heard.append(next(frames))
    assert event_of(heard[-1]) == "token"
    heard += wendy.follow(reply, cursor=max(ids_of(heard)))
    assert heard == wendy.follow(reply, edge=1)
    assert text_of(heard) == TEXT


def test_readers_that_join_while_tokens_flow_meet_no_seam(wendy: Client) -> None:
    reply = wendy.say("seam", TEXT)
    with wendy.stream(reply) as first, ThreadPoolExecutor(4) as pool:
        early = [next(first) for _ in range(20)]
        joined = [pool.submit(wendy.follow, reply, 1, cursor) for cursor in (None, 0, 5, 30)]
        whole = early + list(first)
        assert [b"".join(reader.result()) for reader in joined] == [
            b"".join(whole), *(after(whole, cursor) for cursor in (0, 5, 30))
        ]  # fmt: skip


def test_a_cursor_ahead_of_a_running_reply_waits_for_it(wendy: Client) -> None:
    reply = wendy.say("ahead", TEXT)
    assert ids_of(wendy.follow(reply, 1, cursor=50))[0] == 51
    assert text_of(wendy.follow(reply)) == TEXT


def test_an_edge_that_was_started_again_serves_old_replies_from_the_log(paced: MendedStack, wendy: Client) -> None:
    reply = wendy.say("long-ago", TEXT)
    whole = wendy.follow(reply)
    paced.restart("edge-1")
    for cursor in (0, 40):
        with wendy.stream(reply, 1, cursor) as frames:
            assert b"".join(frames) == after(whole, cursor)
    with wendy.stream(reply, 1) as frames:
        assert list(frames) == whole
