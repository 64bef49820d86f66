"""Whatever a token's text holds, every SSE parser reads it back, and nothing else."""

from __future__ import annotations

import httpx
import httpx_sse
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.frames import PING, frame, retry_frame, to_json, token_frame

NASTY = [
    "\r", "\n", "\r\n\r\n", "data: x", "\nid: 7\n", "\nevent: finished\n\n", "[DONE]", "\u2028", "\u2029", "\u0085",
    "\x0b\x0c\x1c\x1d\x1e", "\x00", "\ufeff", '"\\', "👩‍🚀", "",
]  # fmt: skip
texts = st.lists(st.sampled_from(NASTY) | st.text(st.characters(exclude_categories=["Cs"])), max_size=8).map("".join)

unhurried = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def parsed(stream: bytes) -> list[tuple[str, str, str]]:
    """(event, id, data) of each event: the parser of the SSE specification, fed one byte at a time."""
    found: list[tuple[str, str, str]] = []
    line, data = bytearray(), list[str]()
    event, last_id, after_cr = "", "", False
    for byte in stream:
        if byte == 0x0A and after_cr:
            after_cr = False
            continue
        after_cr = byte == 0x0D
        if byte not in (0x0A, 0x0D):
            line.append(byte)
            continue
        name, _, value = bytes(line).decode().partition(":")
        value = value.removeprefix(" ")
        if not line and data:
            found.append((event or "message", last_id, "\n".join(data)))
        if not line:
            event, data = "", []
        elif name == "event":
            event = value
        elif name == "id":
            last_id = value
        elif name == "data":
            data.append(value)
        line.clear()
    return found


def read_by_httpx(stream: bytes) -> list[tuple[str, str, str]]:
    response = httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=stream)
    return [(event.event, event.id, event.data) for event in httpx_sse.EventSource(response).iter_sse()]


@unhurried
@given(st.lists(texts, max_size=6))
def test_texts_arrive_unchanged_through_two_parsers(written: list[str]) -> None:
    stream = b"".join(token_frame(n, text) + PING for n, text in enumerate(written, 1))
    expected = [("token", str(n), text) for n, text in enumerate(written, 1)]
    for parser in (parsed, read_by_httpx):
        assert [(event, n, orjson.loads(data)["text"]) for event, n, data in parser(stream)] == expected


@unhurried
@given(texts)
def test_json_has_no_character_that_any_client_takes_for_a_line_end(text: str) -> None:
    encoded = to_json({"text": text})
    assert len(encoded.decode().splitlines()) == 1
    assert orjson.loads(encoded) == {"text": text}


@unhurried
@given(texts, st.integers(1, 10**6))
def test_a_token_frame_is_what_the_general_frame_would_be(text: str, n: int) -> None:
    assert token_frame(n, text) == frame("token", {"text": text}, n)


@pytest.mark.parametrize("silent", [PING, retry_frame(500), PING * 3 + retry_frame(1)])
def test_a_ping_and_a_retry_are_no_events(silent: bytes) -> None:
    assert parsed(silent) == read_by_httpx(silent) == []
    assert [event for event, _, _ in parsed(silent + token_frame(1, "x"))] == ["token"]
