"""Chat completions through a whole edge, by the official client where it matters what that makes of an answer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import orjson
import pytest

from schemas import reply_records as r
from schemas.events import ChatMessage, MessagePosted
from schemas.ids import ReplyId
from schemas.reply import Record
from tests.unit.edge.running_edge import (
    PATIENCE_S,
    REPLICA,
    RunningEdge,
    accepted,
    finished,
    started,
    three_tokens,
    tokens,
    wait_for,
)

PATH = "/v1/chat/completions"
HELLO: list[Any] = [{"role": "user", "content": "hi"}]
BODY = {"messages": HELLO, "model": "m1"}
STREAM = {**BODY, "stream": True}
COUNTED = {**STREAM, "stream_options": {"include_usage": True}}


@pytest.fixture
def client(edge: RunningEdge) -> Iterator[openai.OpenAI]:
    with stock_client(edge) as made:
        yield made


def stock_client(edge: RunningEdge, key: str = "alice-key") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{edge.url}/v1", api_key=key, max_retries=0, timeout=PATIENCE_S)


def streamed(edge: RunningEdge, body: dict[str, Any] = STREAM, **headers: str) -> httpx.Response:
    with edge.client() as plain:
        return plain.post(PATH, json=body, headers=headers)


def chunks_of(answer: httpx.Response) -> list[Any]:
    """The data of each event; [DONE] as text."""
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else orjson.loads(line) for line in lines]


def open_reply(posted: MessagePosted) -> list[Record]:
    return [accepted(posted), started(), tokens(1, "a")]


def test_a_completion_is_the_whole_reply(edge: RunningEdge, client: openai.OpenAI) -> None:
    done = client.chat.completions.create(model="m1", messages=HELLO)
    [posted] = edge.posted
    assert (done.id, done.model, done.object) == (posted.reply, "m1", "chat.completion")
    assert (done.choices[0].message.content, done.choices[0].finish_reason) == ("Hello", "stop")
    assert done.usage and (done.usage.prompt_tokens, done.usage.completion_tokens, done.usage.total_tokens) == (
        7,
        3,
        10,
    )
    assert done.system_fingerprint and done._request_id == posted.reply


def test_what_is_posted_is_the_prompt_and_a_wish_to_be_cancelled(edge: RunningEdge) -> None:
    for _ in range(2):
        assert streamed(edge, BODY).status_code == 200
    first, second = edge.posted
    assert (first.messages, first.text, first.on_disconnect) == ((ChatMessage("user", "hi"),), "", "cancel")
    assert first.client_key == second.client_key == ""
    assert first.conversation != second.conversation


def test_a_stream_names_the_role_once_and_ends_with_its_reason(edge: RunningEdge) -> None:
    *chunks, done = chunks_of(streamed(edge))
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": ""}, {"content": "Hel"}, {"content": "lo"}, {},
    ]  # fmt: skip
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "stop"]
    assert (done, any("usage" in chunk for chunk in chunks)) == ("[DONE]", False)
    assert len({(chunk["id"], chunk["created"], chunk["system_fingerprint"]) for chunk in chunks}) == 1


def test_the_counts_come_once_before_the_end_when_they_are_wanted(edge: RunningEdge) -> None:
    *chunks, counted, done = chunks_of(streamed(edge, COUNTED))
    assert [chunk["usage"] for chunk in chunks] == [None] * len(chunks)
    assert (counted["choices"], done) == ([], "[DONE]")
    assert counted["usage"] == {
        "prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0},
    }  # fmt: skip


def test_log_probabilities_are_told_token_by_token(edge: RunningEdge, client: openai.OpenAI) -> None:
    rivals = (r.LikelyToken(b"\xc3", -0.5), r.LikelyToken(b"x", -math.inf))
    likely = (r.TokenLogprob(b"\xc3", -0.5, rivals), r.TokenLogprob(b"\xa9", -1.0, ()))
    edge.script = lambda posted: [
        accepted(posted), started(), replace(tokens(1, "", "é"), logprobs=likely), finished(2),
    ]  # fmt: skip
    done = client.chat.completions.create(model="m1", messages=HELLO, logprobs=True, top_logprobs=2)
    told = done.choices[0].logprobs
    assert edge.posted[0].sampling.top_logprobs == 2
    assert told and told.content and [entry.bytes for entry in told.content] == [[0xC3], [0xA9]]
    assert [rival.logprob for rival in told.content[0].top_logprobs] == [-0.5, -9999.0]
    parts = client.chat.completions.create(model="m1", messages=HELLO, logprobs=True, stream=True)
    heard = [part.choices[0].logprobs for part in parts if part.choices[0].logprobs]
    assert [part.content for part in heard] == [[entry] for entry in told.content]


@pytest.mark.parametrize(
    ("rejected", "kind"),
    [
        (r.Rejected("context_length_exceeded", "the prompt has 9 tokens"), openai.BadRequestError),
        (r.Rejected("model_not_found", "gone"), openai.NotFoundError),
        (r.Rejected("conflict", "used before"), openai.ConflictError),
        (r.Rejected("quota", "used up", 5_000), openai.RateLimitError),
        (r.Rejected("internal"), openai.InternalServerError),
    ],
)
def test_a_refusal_raises_the_clients_own_error(
    edge: RunningEdge, client: openai.OpenAI, rejected: r.Rejected, kind: type[openai.APIStatusError]
) -> None:
    edge.script = lambda _: [rejected]
    with pytest.raises(kind) as caught:
        client.chat.completions.create(model="m1", messages=HELLO, stream=True)
    assert (caught.value.code, caught.value.request_id) == (rejected.reason, edge.posted[0].reply)


@pytest.mark.parametrize(
    ("end", "kind", "code"),
    [
        (r.Shed("backlog", 1_500), openai.InternalServerError, "overloaded"),
        (r.Failed("deadline"), openai.InternalServerError, "deadline"),
        (r.Failed("context_length_exceeded: 9"), openai.BadRequestError, "context_length_exceeded"),
        (r.Stopped("abandoned"), openai.ConflictError, "cancelled"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_reply_that_ends_before_it_begins_has_a_status(
    edge: RunningEdge, client: openai.OpenAI, end: Record, kind: type[openai.APIStatusError], code: str, stream: bool
) -> None:
    edge.script = lambda posted: [accepted(posted), end]
    with pytest.raises(kind) as caught:
        client.chat.completions.create(model="m1", messages=HELLO, stream=stream)
    assert caught.value.code == code


def test_a_reply_that_fails_in_its_middle_raises_after_what_it_had(edge: RunningEdge, client: openai.OpenAI) -> None:
    edge.script = lambda posted: [*open_reply(posted), r.Failed("replica_lost")]
    parts = client.chat.completions.create(model="m1", messages=HELLO, stream=True)
    assert [next(parts).choices[0].delta.content for _ in range(2)] == ["", "a"]
    with pytest.raises(openai.APIError, match="was lost"):
        next(parts)


@pytest.mark.parametrize(
    ("end", "reason"), [(r.Stopped("user"), "stop"), (r.Finished(1, started().incarnation, "length", 1), "length")]
)
def test_other_ends_have_the_nearest_of_openais_reasons(edge: RunningEdge, end: Record, reason: str) -> None:
    edge.script = lambda posted: [*open_reply(posted), end]
    choice = streamed(edge, BODY).json()["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == (reason, "a")


def test_what_was_flagged_is_filtered(edge: RunningEdge) -> None:
    edge.script = lambda posted: [
        accepted(posted, checked=True), started(), tokens(1, "a", "b"), r.Flagged(1, "violence"),
    ]  # fmt: skip
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks_of(streamed(edge))[:-1]][-1] == "content_filter"
    assert "b" not in [chunk["choices"][0]["delta"].get("content") for chunk in chunks_of(streamed(edge))[:-1]]


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_cancels(tmp_path: Path, stream: bool) -> None:
    with RunningEdge(tmp_path, open_reply) as edge:
        with edge.client() as plain, pytest.raises(httpx.ReadTimeout):
            plain.post(PATH, json={**BODY, "stream": stream}, timeout=0.5)
        wait_for(lambda: edge.posted)
        reply = edge.posted[0].reply
        wait_for(lambda: any(isinstance(record, r.Stopped) for record in edge.records(reply)))
        stopped = next(record for record in edge.records(reply) if isinstance(record, r.Stopped))
    assert stopped.by == "abandoned"


def test_a_client_that_goes_away_cancels_nothing_while_another_listens(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, open_reply) as edge:
        with edge.client() as plain, plain.stream("POST", PATH, json=STREAM) as first:
            heard = first.iter_text()
            assert next(heard)
            reply = edge.posted[0].reply
            edge.write(reply, r.ListenerAttached("another edge", "s1"))
            wait_for(lambda: len(edge.inner.tails._views[reply].view.reply.listeners) == 2)
        wait_for(lambda: any(isinstance(record, r.ListenerDetached) for record in edge.records(reply)))
        assert not any(isinstance(record, r.Stopped) for record in edge.records(reply))


def test_a_repeat_attaches_to_the_first_reply(edge: RunningEdge) -> None:
    first = chunks_of(streamed(edge, STREAM, **{"Idempotency-Key": "k"}))
    edge.script = lambda _: [r.Redirected(ReplyId(first[0]["id"]))]
    assert chunks_of(streamed(edge, STREAM, **{"Idempotency-Key": "k"})) == first
    whole = streamed(edge, BODY, **{"Idempotency-Key": "k"})
    assert (whole.json()["id"], whole.headers["x-request-id"]) == (first[0]["id"], first[0]["id"])
    assert len({posted.conversation for posted in edge.posted}) == 1


def test_silence_is_filled_with_comments_that_the_client_survives(tmp_path: Path) -> None:
    def queued(posted: MessagePosted) -> list[Record]:
        return [accepted(posted), r.Dispatched(1, "main/0", REPLICA, started().request), r.AttemptOpened(2)]

    with RunningEdge(tmp_path, queued, keep_alive=0.02) as edge:
        with edge.client() as plain, plain.stream("POST", PATH, json=STREAM) as got:
            heard = got.iter_text()
            assert set("".join(next(heard) for _ in range(3)).split("\n")) == {": ping", ""}
        edge.script = three_tokens
        with stock_client(edge) as client:
            parts = client.chat.completions.create(model="m1", messages=HELLO, stream=True)
            assert "".join(part.choices[0].delta.content or "" for part in parts) == "Hello"


def test_an_edge_that_leaves_says_an_error_and_not_done(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, open_reply) as edge, stock_client(edge) as client:
        heard = []
        with pytest.raises(openai.APIError, match="leaving"):
            for part in client.chat.completions.create(model="m1", messages=HELLO, stream=True):
                heard.append(part)
                edge.process.server.should_exit = True
    assert heard and all(part.choices[0].finish_reason is None for part in heard)


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"{", 400, None),
        (orjson.dumps({**BODY, "n": 2}), 400, "n"),
        (orjson.dumps({**BODY, "model": "x"}), 404, "model"),
    ],
)
def test_a_bad_request_reaches_no_log(edge: RunningEdge, body: bytes, status: int, param: str | None) -> None:
    with edge.client() as plain:
        answer = plain.post(PATH, content=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)
    assert answer.headers["x-request-id"].startswith("req-")
    assert edge.posted == []


def test_without_a_key_there_is_an_authentication_error(edge: RunningEdge) -> None:
    with stock_client(edge, "nobody") as client, pytest.raises(openai.AuthenticationError):
        client.chat.completions.create(model="m1", messages=HELLO)
    assert edge.posted == []


def test_a_chunk_has_no_id_to_resume_from(edge: RunningEdge) -> None:
    answer = streamed(edge, STREAM, **{"Last-Event-ID": "3"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "Last-Event-ID")


def test_models_are_listed_and_found(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["m1", "m2"]
    assert client.models.retrieve("m2").object == "model"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("org/m3")
    assert caught.value.code == "model_not_found"
