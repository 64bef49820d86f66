"""What each route takes and answers, by its endpoint: names of schemas and parameters, classes of errors.

An endpoint that is missing here stops the edge at its start, so no route goes without a description.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edge import chat_completions, conversations, messages, models, probes, rates, replies, session, usage
from edge.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    HeadTooLarge,
    Internal,
    NotFound,
    NotNow,
    OverQuota,
    TooLarge,
    TooSlow,
    Unauthorized,
)
from edge.messages import SSE
from edge.openapi_answers import event_schema, example_stream
from edge.openapi_requests import TEXT, Schema, ref

JSON = "application/json"
EVERYWHERE: tuple[type[ApiError], ...] = (BadRequest, TooSlow, HeadTooLarge, Internal, NotNow)
EVENTS = (
    "accepted",
    "queued",
    "preempted",
    "resuming",
    "token",
    "finished",
    "stopped",
    "failed",
    "shed",
    "flagged",
    "error",
)

ANYBODY: tuple[str, ...] = ()
BEARER, COOKIE, COOKIE_WITH_TOKEN = "bearer", "session", "session with its token"
CALLER = (BEARER, COOKIE)
CHANGER = (BEARER, COOKIE_WITH_TOKEN)


@dataclass(frozen=True, slots=True)
class Answer:
    """`links`: operations to go on with, and where in the body their parameters are."""

    meaning: str
    content: Mapping[str, Schema] = field(default_factory=dict)
    headers: tuple[str, ...] = ()
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operation:
    """`parameters` beside those in the path; `body` names a schema, and `examples` are some of it by name."""

    tag: str
    summary: str
    answers: Mapping[int, Answer]
    errors: tuple[type[ApiError], ...] = ()
    parameters: tuple[str, ...] = ()
    body: str = ""
    examples: Mapping[str, Any] = field(default_factory=dict)
    access: tuple[str, ...] = CALLER


def as_json(meaning: str, name: str, **more: Any) -> Answer:
    return Answer(meaning, {JSON: {"schema": ref(name)}}, **more)


def event(data: str, name: str = "") -> Schema:
    """One event of a stream: before OpenAPI 3.2 a stream's schema is that of each of its events."""
    said = {**TEXT, "contentMediaType": JSON, "contentSchema": ref(data)}
    named: Schema = {"event": {"const": name}, "id": TEXT} if name else {}
    return {
        "type": "object",
        "properties": {**named, "data": said},
        "required": ["event", "data"] if name else ["data"],
    }


NUMBERED = {
    SSE: {
        "schema": {"oneOf": [event(event_schema(name), name) for name in EVENTS]},
        "example": example_stream(),
    }
}
WHOLE = {"type": "object", "properties": {"data": {"const": "[DONE]"}}, "required": ["data"]}
CHUNKS = {SSE: {"schema": {"anyOf": [WHOLE, event("CompletionChunk")]}}}
SEEN = Answer("The client has seen the end.")
AGAIN = {
    "get_events": {"reply": "$response.body#/reply"},
    "get_reply": {"reply": "$response.body#/reply"},
    "stop_reply": {"reply": "$response.body#/reply"},
    "get_conversation": {"conversation": "$response.body#/conversation"},
    "rename_conversation": {"conversation": "$response.body#/conversation"},
}
RATES = (*rates.NAMES, rates.ASKED_MODEL)
HI = [{"role": "user", "content": "What is the capital of France?"}]

OPERATIONS: Mapping[Callable[..., Any], Operation] = {
    messages.post_message: Operation(
        "conversations",
        "Say something in a conversation, which need not exist yet; the reply comes as a stream if Accept names one.",
        {
            200: Answer("The reply as it comes.", NUMBERED, RATES),
            202: as_json("The message is taken; its reply is at `url`.", "Receipt", headers=RATES, links=AGAIN),
            204: SEEN,
        },
        (Unauthorized, Forbidden, Conflict, Gone, TooLarge, OverQuota),
        ("idempotency_key", "last_event_id"),
        "Message",
        {
            "short": {"text": "What is the capital of France?"},
            "branch": {"text": "And of Italy?", "parent": "root", "system": "Answer in one word."},
            "again": {"parent": "u-018bcfe56800700080000000000000000"},
            "drawn": {"text": "Tell me a story.", "max_tokens": 64, "temperature": 0.8, "seed": 7, "stop": ["The end"]},
        },
        CHANGER,
    ),
    conversations.rename_conversation: Operation(
        "conversations",
        "Give a conversation a title; answered once every edge shows it.",
        {200: as_json("Its line in the list.", "ConversationLine")},
        (Unauthorized, Forbidden, NotFound, TooLarge),
        body="Title",
        examples={"title": {"title": "Capitals"}},
        access=CHANGER,
    ),
    conversations.delete_conversation: Operation(
        "conversations",
        "Delete a conversation and stop its reply; answered once every edge shows it.",
        {204: Answer("It is gone.")},
        (Unauthorized, Forbidden, NotFound),
        access=CHANGER,
    ),
    conversations.export_conversation: Operation(
        "conversations",
        "A whole conversation as a file.",
        {200: as_json("The document.", "Export")},
        (Unauthorized, NotFound),
    ),
    conversations.export_all: Operation(
        "conversations",
        "All of the caller's conversations as a file.",
        {200: as_json("The document.", "Export")},
        (Unauthorized,),
    ),
    conversations.get_conversation: Operation(
        "conversations",
        "A branch of a conversation, oldest first, the newest page of the newest branch first.",
        {200: as_json("A page.", "Conversation")},
        (Unauthorized, NotFound),
        ("limit", "before", "through"),
    ),
    conversations.list_conversations: Operation(
        "conversations",
        "The caller's conversations, newest first.",
        {200: as_json("A page.", "Conversations")},
        (Unauthorized,),
        ("limit", "before"),
    ),
    replies.get_events: Operation(
        "replies",
        "A reply's events: what is past, then live. Any edge goes on after any event.",
        {200: Answer("The events after the last that was seen.", NUMBERED), 204: SEEN},
        (Unauthorized, NotFound, Gone),
        ("last_event_id", "last_event_id_of_query"),
    ),
    replies.stop_reply: Operation(
        "replies",
        "Stop a reply; safe to repeat.",
        {200: as_json("The log says so, or how it had ended before.", "ReplyEnd")},
        (Unauthorized, Forbidden, NotFound),
        access=CHANGER,
    ),
    replies.get_reply: Operation(
        "replies",
        "A reply's state and its text so far.",
        {200: as_json("The reply.", "Reply")},
        (Unauthorized, NotFound),
    ),
    usage.get_usage: Operation(
        "session",
        "What the caller has used, holds for running replies and has left, of every limit.",
        {200: as_json("Every limit as it stands.", "Quota")},
        (Unauthorized,),
    ),
    session.get_session: Operation(
        "session",
        "The open session, and the token that its changes need.",
        {200: as_json("The session.", "Session")},
        (Unauthorized,),
        access=(COOKIE,),
    ),
    session.post_session: Operation(
        "session",
        "A cookie for an API key, valid at every edge.",
        {200: as_json("The session.", "Session", headers=("Set-Cookie",))},
        (Unauthorized,),
        access=(BEARER,),
    ),
    session.delete_session: Operation(
        "session",
        "Clear the cookie; one of an open session needs the session's token.",
        {204: Answer("It is cleared.", headers=("Set-Cookie",))},
        (Forbidden,),
        access=ANYBODY,
    ),
    chat_completions.create_completion: Operation(
        "openai",
        "OpenAI's chat completion, whole or streamed. Nothing is stored; a client that goes away cancels.",
        {200: Answer("The completion.", {JSON: {"schema": ref("Completion")}, **CHUNKS}, RATES)},
        (Unauthorized, Forbidden, NotFound, Conflict, TooLarge, OverQuota),
        ("idempotency_key",),
        "CompletionRequest",
        {"whole": {"messages": HI}, "streamed": {"messages": HI, "stream": True, "max_tokens": 64}},
        CHANGER,
    ),
    models.list_models: Operation(
        "openai", "The models that are served.", {200: as_json("The models.", "Models")}, (Unauthorized,)
    ),
    models.get_model: Operation(
        "openai", "One model.", {200: as_json("The model.", "Model")}, (Unauthorized, NotFound)
    ),
    probes.get_schema: Operation(
        "operations",
        "An Avro schema by its id, as a Confluent schema registry answers.",
        {200: Answer("The schema.", {probes.SCHEMA_MEDIA_TYPE: {"schema": ref("AvroSchema")}})},
        (NotFound,),
        access=ANYBODY,
    ),
    probes.health: Operation(
        "operations", "The process answers.", {200: as_json("It does.", "Health")}, access=ANYBODY
    ),
    probes.ready: Operation(
        "operations",
        "Whether requests should come here.",
        {
            200: as_json("They should.", "Ready"),
            503: Answer(
                "They should not: `missing` says why.", {JSON: {"schema": {"oneOf": [ref("Ready"), ref("Error")]}}}
            ),
        },
        access=ANYBODY,
    ),
    probes.metrics: Operation(
        "operations",
        "Metrics for Prometheus.",
        {200: Answer("The metrics.", {"text/plain": {"schema": TEXT}})},
        access=ANYBODY,
    ),
    probes.get_document: Operation(
        "operations", "This document.", {200: as_json("OpenAPI 3.1.", "Document")}, access=ANYBODY
    ),
}
