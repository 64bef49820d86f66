"""What an edge answers, as JSON Schema. Answers may gain fields: a client has to pass over those it does not know."""

from __future__ import annotations

from typing import Any

from edge import completion_requests, frames
from edge.config import EdgeConfig
from edge.openapi_requests import TEXT, Schema, or_null, ref
from schemas.quota_records import COUNTED
from schemas.reply import State
from topics.store.export import FORMAT

COUNT: Schema = {"type": "integer", "minimum": 0}
TEXT_OR_NULL = or_null(TEXT)
FLAG: Schema = {"type": "boolean"}

NEVER_ACCEPTED = (State.UNSEEN, State.REJECTED, State.REDIRECTED, State.TOLD)
STATES = [state.value.lower() for state in State if state not in NEVER_ACCEPTED]
ENDS = [state.value.lower() for state in State if state.ended and state not in NEVER_ACCEPTED]
REASONS = ("stop", "length", "content_filter")


def answer_schemas(config: EdgeConfig) -> dict[str, Schema]:
    """The bodies of answers by name."""
    model = {"enum": list(config.models)}
    return {**PROBES, **USERS, **completions(model), **replies(model), **events(model)}


def answered(properties: dict[str, Schema], *optional: str) -> Schema:
    """An object that has these fields, but for the optional ones always."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def listed(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def replies(model: Schema) -> dict[str, Schema]:
    receipt = {
        "reply": TEXT,
        "conversation": TEXT,
        "url": TEXT,
        "max_tokens": COUNT,
        "model": model,
        "asked_model": model,
    }
    reply = {
        "id": TEXT,
        "conversation": TEXT,
        "model": TEXT,
        "state": {"enum": STATES},
        "text": TEXT,
        "usage": ref("Usage"),
        "finish_reason": TEXT_OR_NULL,
        "cursor": {**COUNT, "description": "The newest event's id."},
    }
    return {
        "Receipt": answered(receipt, "max_tokens", "model", "asked_model"),
        "Reply": answered(reply),
        "ReplyEnd": answered({"state": {"enum": ENDS}}),
        "Usage": answered(dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), COUNT)),
        "Model": answered({"id": model, "object": {"const": "model"}, "created": COUNT, "owned_by": TEXT}),
        "Models": answered({"object": {"const": "list"}, "data": listed(ref("Model"))}),
    }


def events(model: Schema) -> dict[str, Schema]:
    """The data of each event of a reply, under the event's name."""
    accepted = {
        "reply": TEXT,
        "conversation": TEXT,
        "user_message": TEXT_OR_NULL,
        "assistant_message": TEXT,
        "model": model,
        "max_tokens": COUNT,
        "asked_model": {**model, "description": "The model that was asked for, where a quota made another answer."},
    }
    counted = {"usage": ref("Usage")}
    reason = {"reason": TEXT_OR_NULL, **counted}
    made = {
        "accepted": answered(accepted, "max_tokens", "asked_model"),
        **dict.fromkeys(("queued", "preempted", "resuming"), answered({})),
        "token": answered({"text": TEXT, "logprobs": ref("TokenLogprob")}, "logprobs"),
        "finished": answered({"finish_reason": TEXT_OR_NULL, **counted}),
        "flagged": answered({"category": TEXT_OR_NULL, **counted}),
        "shed": answered({**reason, "retry_after": COUNT}),
        "stopped": answered(reason),
        "failed": answered({**reason, "message": TEXT}),
        "error": ref("Error"),
    }
    return {event_schema(name): schema for name, schema in made.items()}


def event_schema(name: str) -> str:
    return f"Event{name.capitalize()}"


def completions(model: Schema) -> dict[str, Schema]:
    likely = {"token": TEXT, "logprob": {"type": "number"}, "bytes": listed({**COUNT, "maximum": 255})}
    logprobs = answered({"content": listed(ref("TokenLogprob")), "refusal": {"type": "null"}})
    ends = {"enum": list(REASONS)}
    common = {"index": COUNT, "logprobs": {"oneOf": [logprobs, {"type": "null"}]}}
    said = answered({"role": {"const": "assistant"}, "content": TEXT, "refusal": {"type": "null"}})
    choice = answered({**common, "message": said, "finish_reason": ends})
    delta = answered({"role": {"const": "assistant"}, "content": TEXT}, "role", "content")
    part = answered({**common, "delta": delta, "finish_reason": {"enum": [*REASONS, None]}})
    head = {"id": TEXT, "created": COUNT, "model": model, "system_fingerprint": TEXT_OR_NULL}
    counts = ref("CompletionUsage")
    usage = {"prompt_tokens_details": answered({"cached_tokens": COUNT})}
    usage |= dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), COUNT)
    chunk = {"object": {"const": "chat.completion.chunk"}, "choices": listed(part)}
    return {
        "TokenLogprob": answered({**likely, "top_logprobs": listed(answered(likely))}),
        "CompletionUsage": answered(usage),
        "Completion": answered(
            {**head, "object": {"const": "chat.completion"}, "choices": listed(choice), "usage": counts}
        ),
        "CompletionChunk": answered({**head, **chunk, "usage": {"oneOf": [counts, {"type": "null"}]}}, "usage"),
    }


_LINE: dict[str, Schema] = {
    "id": TEXT,
    "title": TEXT,
    "messages": COUNT,
    "created_ms": COUNT,
    "updated_ms": COUNT,
}
_TURN: dict[str, Schema] = {
    "id": TEXT,
    "role": {"enum": sorted(set(completion_requests.ROLES.values()))},
    "text": TEXT,
    "status": {"enum": list(frames.EVENT_OF_STATUS)},
    "reply": TEXT,
    "model": TEXT,
    "created_ms": COUNT,
    "parent": TEXT_OR_NULL,
    "siblings": {**listed(TEXT), "description": "The messages that follow the same one, itself too, oldest first."},
}
_LIMIT: dict[str, Schema] = {
    "model": TEXT,
    "what": {"enum": list(COUNTED)},
    "window": {**TEXT_OR_NULL, "description": "`90s` to `31d` slide; `day`, `month`; null: at once."},
    **dict.fromkeys(("limit", "used", "reserved", "remaining"), COUNT),
    "reset_ms": or_null({**COUNT, "description": "When it is whole again if nothing more is used; null: it is."}),
}
_NEXT: Schema = {
    **TEXT_OR_NULL,
    "description": "What the next request gives as `before`; null: this was the last page.",
}
_EXPORTED_TURN = _TURN | {"reason": TEXT_OR_NULL, "prompt_tokens": COUNT, "completion_tokens": COUNT}
del _EXPORTED_TURN["siblings"]  # a file has all of them, each with its parent
_EXPORT: dict[str, Schema] = {
    "format": {"const": FORMAT},
    "user": TEXT,
    "conversations": listed(answered(_LINE | {"system": TEXT, "messages": listed(answered(_EXPORTED_TURN))})),
}
USERS: dict[str, Schema] = {
    "Export": answered(_EXPORT),
    "ConversationLine": answered(_LINE),
    "Conversations": answered({"conversations": listed(ref("ConversationLine")), "next": _NEXT}),
    "Turn": answered(_TURN),
    "Conversation": answered(
        {"id": TEXT, "title": TEXT, "system": TEXT, "messages": listed(ref("Turn")), "next": _NEXT}
    ),
    "Quota": answered({"plan": TEXT_OR_NULL, "time_zone": TEXT, "limits": listed(answered(_LIMIT))}),
    "Session": answered({"user": TEXT, "csrf": TEXT, "edges": listed(TEXT), "expires_in": COUNT}),
}
_ERROR: dict[str, Schema] = {"message": TEXT, "type": TEXT, "code": TEXT, "param": TEXT_OR_NULL}
PROBES: dict[str, Schema] = {
    "Error": answered({"error": answered(_ERROR)}),
    "Health": answered({"status": {"const": "ok"}}),
    "Ready": answered({"ready": FLAG, "missing": listed(TEXT)}),
    "AvroSchema": answered({"schema": TEXT}),
    "Document": {"type": "object", "required": ["openapi", "info", "paths"]},
}


def example_stream() -> str:
    """A short reply, framed as an edge frames it."""
    accepted: dict[str, Any] = {"reply": "r00000-...", "conversation": "c1"}
    end = {"finish_reason": "stop", "usage": frames.usage(37, 1)}
    made = frames.frame("accepted", accepted, 0) + frames.token_frame(1, "Hello") + frames.frame("finished", end, 2)
    return made.decode()
