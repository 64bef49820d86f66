"""The body of a chat completion: what says nothing passes, what cannot be done is refused by name."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from edge.completion_requests import CompletionRequest, read_completion
from edge.config import Defaults
from edge.errors import ApiError, NotFound
from schemas.events import ChatMessage

DEFAULTS = Defaults(("m1", "m2"), 600.0)
HELLO = [{"role": "user", "content": "hi"}]
STREAMED = {"stream": True}


def read(**fields: Any) -> CompletionRequest:
    return read_completion(orjson.dumps({"messages": HELLO, "model": "m1", **fields}), DEFAULTS)


def refused(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(**fields)
    return caught.value


def test_messages_keep_their_order_and_a_developer_is_the_system() -> None:
    said = [("developer", "Be kind."), ("user", "hi"), ("assistant", ""), ("user", "and?")]
    asked = read(messages=[{"role": role, "content": text} for role, text in said])
    assert asked.messages == (ChatMessage("system", "Be kind."), *(ChatMessage(*pair) for pair in said[1:]))


def test_text_parts_are_lines_of_one_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert read(messages=[{"role": "user", "content": parts}]).messages == (ChatMessage("user", "a\nb"),)


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1}, {"tools": []}, {"tools": None}, {"tool_choice": "auto"}, {"tool_choice": "none"}, {"store": False},
        {"parallel_tool_calls": True}, {"parallel_tool_calls": False}, {"logit_bias": {}}, {"logit_bias": None},
        {"response_format": {"type": "text"}}, {"service_tier": "auto"}, {"metadata": {"a": "b"}}, {"user": "u1"},
        {"modalities": ["text"]}, {"prompt_cache_key": "k"}, {"safety_identifier": "s"}, {"audio": None},
        {"min_p": 0.0}, {"min_p": 0}, {"stop_token_ids": []}, {"skip_special_tokens": True}, {"length_penalty": 1.0},
        {"stream": True, "stream_options": {"include_usage": False, "include_obfuscation": False}},
    ],
)  # fmt: skip
def test_what_asks_for_nothing_changes_nothing(fields: dict[str, Any]) -> None:
    assert read(**fields).body_hash == read().body_hash


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2), ("n", 0), ("n", True), ("n", 1.0), ("tools", [{"type": "function"}]), ("tool_choice", "required"),
        ("store", True), ("logit_bias", {"5": 1}), ("response_format", {"type": "json_object"}),
        ("response_format", {"type": "json_schema", "json_schema": {}}), ("audio", {"voice": "x"}),
        ("modalities", ["text", "audio"]), ("service_tier", "flex"), ("reasoning_effort", "high"), ("min_p", 0.1),
        ("stop_token_ids", [2]), ("functions", [{"name": "f"}]), ("web_search_options", {"x": 1}),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(field: str, value: object) -> None:
    error = refused(**{field: value})
    assert (error.status, error.param, error.code_shown) == (400, field, "unsupported_value")
    assert error.message.startswith(f"{field}=")


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("hi", "messages[0]"),
        ({"role": "tool", "content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": []}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": "x", "name": 5}, "messages[0].name"),
        ({"role": "user", "content": "x", "mood": "good"}, "messages[0].mood"),
        ({"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}, "messages[0].tool_calls"),
    ],
)
def test_a_message_that_the_model_cannot_be_shown_is_refused(message: object, param: str) -> None:
    assert refused(messages=[message]).param == param


def test_what_a_client_says_again_of_an_earlier_answer_is_taken() -> None:
    echoed = {
        "role": "assistant",
        "content": "x",
        "refusal": None,
        "tool_calls": None,
        "annotations": [],
        "audio": None,
    }
    assert read(messages=[*HELLO, echoed]).messages[1] == ChatMessage("assistant", "x")


def test_the_name_that_a_framework_gives_a_speaker_changes_nothing() -> None:
    assert read(messages=[{**HELLO[0], "name": "bob"}]).body_hash == read().body_hash


@pytest.mark.parametrize("messages", [None, [], "hi", {}, [[]]])
def test_messages_are_a_list_of_some(messages: object) -> None:
    assert (refused(messages=messages).param or "").startswith("messages")


def test_both_names_of_max_tokens_say_the_same() -> None:
    assert read(max_tokens=5).body_hash == read(max_completion_tokens=5).body_hash
    assert read(max_tokens=5, max_completion_tokens=5).asked.sampling.max_tokens == 5
    assert refused(max_tokens=5, max_completion_tokens=6).param == "max_tokens"


def test_the_same_reply_may_be_wanted_streamed_or_whole() -> None:
    streamed = read(stream=True, stream_options={"include_usage": True})
    assert (streamed.stream, streamed.usage, read().stream) == (True, True, False)
    assert streamed.body_hash == read().body_hash != read(temperature=0.5).body_hash


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({**STREAMED, "stream_options": {"include_usage": 1}}, "include_usage"),
        ({**STREAMED, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
        ({**STREAMED, "stream_options": {"speed": 1}}, "stream_options.speed"),
        ({"stream": "yes"}, "stream"),
        ({"metadata": "x"}, "metadata"),
        ({"user": 5}, "user"),
        ({"mood": "good"}, "mood"),
    ],
)
def test_other_fields_are_checked_as_well(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields).param == param


def test_an_unknown_model_is_not_found() -> None:
    error = refused(model="gpt-9")
    assert isinstance(error, NotFound)
    assert (error.code_shown, error.param) == ("model_not_found", "model")
    assert read(model=None).model == "m1"
