"""What a client may send: near misses are refused, and the refusal names field, value and what is expected."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from edge import requests
from edge.config import Defaults
from edge.errors import BadRequest
from edge.sampling import Asked
from schemas.events import Sampling

DEFAULTS = Defaults(("m1", "m2"), 600.0)


def read(**fields: Any) -> requests.MessageRequest:
    return requests.read_message(orjson.dumps({"text": "hi", **fields}), DEFAULTS)


def refused(body: bytes) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        requests.read_message(body, DEFAULTS)
    return caught.value


def test_a_text_alone_gets_every_default() -> None:
    assert read() == requests.MessageRequest("hi", "m1", Asked(Sampling(max_tokens=0), None), 600.0)
    assert read(model=None, seed=None, stop=None, max_tokens=None) == read()


@pytest.mark.parametrize(
    ("field", "value"),
    [("model", "m2"), ("deadline_s", 0.25), ("deadline_s", 1800), ("text", " \u0000x"), ("text", "\u2028a")],
)
def test_a_value_at_the_edge_of_its_range_is_taken(field: str, value: object) -> None:
    assert getattr(read(**{field: value}), field) == value


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_tokens", 1_000_000), ("temperature", 0), ("top_p", 1), ("top_k", 0), ("presence_penalty", -2),
     ("frequency_penalty", 2), ("repetition_penalty", 0.01), ("min_tokens", 0), ("ignore_eos", True)],
)  # fmt: skip
def test_a_way_to_draw_at_the_edge_of_its_range_is_taken(field: str, value: object) -> None:
    assert getattr(read(**{field: value}).asked.sampling, field) == value


@pytest.mark.parametrize(
    ("fields", "top"),
    [({}, None), ({"logprobs": False}, None), ({"logprobs": True}, 0), ({"logprobs": True, "top_logprobs": 20}, 20)],
)
def test_log_probabilities_are_asked_for_in_two_fields(fields: dict[str, object], top: int | None) -> None:
    assert read(**fields).asked.sampling.top_logprobs == top


def test_a_top_k_of_minus_one_is_off() -> None:
    assert read(top_k=-1) == read(top_k=0) == read()


def test_a_body_has_the_hash_that_it_had_before_there_were_more_fields() -> None:
    assert read().body_hash == "0c75ac71d1ad0fe135b1f8ff5adef9f94137d7da71fd49db993ce67b76df494b"
    assert read(presence_penalty=0, ignore_eos=False, logprobs=False).body_hash == read().body_hash
    asked = [read(**{name: 1}) for name in ("presence_penalty", "frequency_penalty", "min_tokens")]
    assert len({other.body_hash for other in [read(), read(logprobs=True), *asked]}) == 5


@pytest.mark.parametrize(
    ("stop", "taken"), [("\n", ("\n",)), (["a", "b" * 256], ("a", "b" * 256)), ([], ())]
)  # fmt: skip
def test_stop_is_one_text_or_a_few(stop: object, taken: tuple[str, ...]) -> None:
    assert read(stop=stop).asked.sampling.stop == taken


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", ""), ("text", " \n\t"), ("text", "\u2028"), ("text", 5), ("text", None), ("text", ["hi"]),
        ("model", "m3"), ("model", 1), ("model", ""),
        ("max_tokens", 0), ("max_tokens", -1), ("max_tokens", 1_000_001), ("max_tokens", 1.0), ("max_tokens", "5"),
        ("max_tokens", True), ("max_tokens", 2**70),
        ("temperature", -0.1), ("temperature", 2.1), ("temperature", "1"), ("temperature", True), ("temperature", []),
        ("top_p", 0), ("top_p", 1.01), ("top_p", -1), ("top_p", False), ("top_k", -2), ("top_k", 1.5), ("top_k", True),
        ("seed", -1), ("seed", 2**63), ("seed", 2**64), ("seed", 1.5), ("seed", "1"), ("seed", False),
        ("stop", ""), ("stop", [""]), ("stop", ["a"] * 5), ("stop", "x" * 257), ("stop", [1]), ("stop", {}),
        ("stop", ["a", None]), ("deadline_s", 0), ("deadline_s", 1800.5), ("deadline_s", "60"), ("deadline_s", True),
        ("presence_penalty", 2.1), ("frequency_penalty", "1"), ("repetition_penalty", 0), ("min_tokens", -1),
        ("ignore_eos", 1), ("logprobs", 3), ("top_logprobs", 21), ("top_logprobs", 1),
        ("temprature", 1), ("n", 2), ("TEXT", "hi"), ("", 1),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_by_name(field: str, value: object) -> None:
    error = refused(json.dumps({"text": "hi", field: value}).encode())
    assert error.param == field
    assert error.message.startswith(f"{field}=")
    assert "expected" in error.message


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"null", b"[]", b'"hi"', b"5", b'{"text":"\\ud800"}', b'{"text":"\xed\xa0\x80"}', b'{"text":"\xff"}',
        b'{"text":"hi","temperature":NaN}', b'{"text":"hi","temperature":Infinity}', b'{"text":"hi","top_p":1e999}',
        b'{"text":"hi",}', b"{'text':'hi'}", b'{"text":"a\nb"}', b"[" * 5000, b'{"text":"hi"} x',
    ],
)  # fmt: skip
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    assert refused(body).code_shown == "invalid_json"


def test_an_error_shortens_and_escapes_what_it_quotes() -> None:
    message = refused(orjson.dumps({"text": "hi", "seed": "\u2028" * 500})).message
    assert len(message) < 200
    assert message.isascii() and message.isprintable()


def test_the_same_request_has_the_same_hash_however_it_is_written() -> None:
    loose = requests.read_message(b'{ "temperature": 1, "text": "h\\u0069", "stop": null }', DEFAULTS)
    assert loose.body_hash == read().body_hash
    others = [read(text="ho"), read(seed=0), read(model="m2"), read(stop="x"), read(max_tokens=1)]
    assert len({other.body_hash for other in [read(), *others]}) == 6


def test_a_seed_is_drawn_only_when_none_is_given() -> None:
    assert read().asked.drawn(9).seed == 9
    assert read(seed=0).asked.drawn(9).seed == 0


@pytest.mark.parametrize("text", ["a", "A.b_c~d-9", "x" * 128, "..."])
def test_a_conversation_id(text: str) -> None:
    assert requests.read_conversation(text) == text


@pytest.mark.parametrize("text", ["", "x" * 129, "a b", "a/b", "é", "a\n", "a%", "٣"])
def test_a_bad_conversation_id(text: str) -> None:
    with pytest.raises(BadRequest, match="conversation="):
        requests.read_conversation(text)


@pytest.mark.parametrize("text", ["", " ", "a b", "x" * 256, "é", "a\t", "\x7f"])
def test_a_bad_client_key(text: str) -> None:
    with pytest.raises(BadRequest, match="Idempotency-Key="):
        requests.read_client_key(text)


@pytest.mark.parametrize(
    ("header", "query", "cursor"),
    [(None, None, None), ("0", None, 0), (None, "7", 7), ("9", "7", 9), ("0012", None, 12), (str(2**31), None, 2**31)],
)
def test_a_cursor(header: str | None, query: str | None, cursor: int | None) -> None:
    assert requests.read_cursor(header, query) == cursor


@pytest.mark.parametrize(
    "text", ["abc", "-1", "1e9", "", "9" * 10_240, "٣", "Ù£", "5; id", "3.0", " 5", "+5", "0x1", str(2**31 + 1), "1_0"]
)
def test_a_bad_cursor_is_one_clear_refusal(text: str) -> None:
    for header, query in ((text, None), (None, text)):
        with pytest.raises(BadRequest, match=r"Last-Event-ID=.*expected an integer from 0 to 2147483648") as caught:
            requests.read_cursor(header, query)
        assert len(caught.value.message) < 250


def test_a_question_may_be_named_in_place_of_a_text() -> None:
    asked = requests.read_message(b'{"parent": "u-1"}', DEFAULTS)
    assert (asked.text, asked.parent) == ("", "u-1")
    assert read(parent="root", system=" \n").system == ""
    assert len({other.body_hash for other in (read(), read(parent="u-1"), read(system=""), read(system="x"))}) == 4


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"parent": "root"}, "text"),
        ({"parent": None}, "text"),
        ({"text": "", "parent": "u-1"}, "text"),
        ({"text": "hi", "parent": "u 1"}, "parent"),
        ({"text": "hi", "parent": 7}, "parent"),
        ({"text": "hi", "system": 7}, "system"),
        ({"text": "hi", "system": "x" * 32_769}, "system"),
        ({"parent": "u-1", "system": "x"}, "system"),
    ],
)
def test_what_is_no_branch_is_refused_by_name(body: dict[str, object], param: str) -> None:
    error = refused(orjson.dumps(body))
    assert error.param == param
    assert "expected" in str(error)


@pytest.mark.parametrize(
    ("deadline_s", "expected"), [(0.0005, 1), (1e-9, 1), (0.001, 1), (0.25, 250), (1800, 1_800_000)]
)
def test_a_deadline_has_a_millisecond_at_least(deadline_s: float, expected: int) -> None:
    assert requests.deadline_ms(deadline_s) == expected


@pytest.mark.parametrize(
    ("name", "good"), [("c1", 1), (".", 0), ("..", 0), ("...", 1), (".c", 1), ("", 0), ("c" * 129, 0)]
)
def test_a_conversation_is_named_as_a_path_can_name_it(name: str, good: int) -> None:
    assert bool(requests.CONVERSATION.fullmatch(name)) == bool(good)
