"""What a client may send, as JSON Schema: each range, choice and pattern is the constant that the parser goes by.

In: an edge's settings. Out: plain dicts. A field that is null was not given, wherever there are fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edge import completion_requests, requests, sampling
from edge.config import EdgeConfig
from edge.fields import Integers, Numbers
from schemas.events import ROOT

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": ["boolean", "null"]}


def request_schemas(config: EdgeConfig) -> dict[str, Schema]:
    """The bodies of requests by name."""
    return {
        "Message": message(config),
        "Title": closed({"title": title()}, "title"),
        "CompletionRequest": completion(config),
        "ChatMessage": chat_message(),
    }


def ranged(allowed: Integers | Numbers) -> Schema:
    """A number of a body or a query."""
    kind = "integer" if isinstance(allowed, Integers) else "number"
    least = "exclusiveMinimum" if isinstance(allowed, Numbers) and allowed.over else "minimum"
    return {"type": kind, least: allowed.least, "maximum": allowed.most}


def or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def closed(properties: dict[str, Schema], *required: str) -> Schema:
    """An object with these fields and no other."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def message(config: EdgeConfig) -> Schema:
    goes_on = {
        "enum": [*requests.ON_DISCONNECT, None],
        "default": requests.ON_DISCONNECT[0],
        "description": "When nobody listens any more: it ends after a while, goes on to its end, or ends at once.",
    }
    text = {
        "type": ["string", "null"],
        "pattern": r"\S",
        "description": "What the user says; not blank. Without it `parent` is a question to be answered again.",
    }
    parent = {
        "type": ["string", "null"],
        "pattern": f"^{requests.MESSAGE.pattern}$",
        "description": f"The message that this one follows, `{ROOT}` to begin anew; else the newest.",
    }
    system = {
        "type": ["string", "null"],
        "maxLength": requests.MOST_SYSTEM_CHARACTERS,
        "description": "The conversation's system prompt from now on; blank: the model's own.",
    }
    own: dict[str, Schema] = {"text": text, "parent": parent, "system": system, "on_disconnect": goes_on}
    either = [{"properties": {name: {"type": "string"}}, "required": [name]} for name in ("text", "parent")]
    return closed({**own, **reply_fields(config)}) | {"anyOf": either} | LOGPROBS


def completion(config: EdgeConfig) -> Schema:
    parsed = completion_requests
    messages = {"type": "array", "minItems": 1, "maxItems": parsed.MOST_MESSAGES, "items": ref("ChatMessage")}
    options = {"include_usage": BOOLEAN, **choices(parsed.IDLE_OF_STREAM)}
    own = {
        "messages": messages,
        "max_completion_tokens": or_null(ranged(sampling.MAX_TOKENS)),
        "stream": BOOLEAN,
        "stream_options": closed(options) | {"type": ["object", "null"], "description": "Only with `stream`."},
    }
    return closed({**own, **reply_fields(config), **notes(parsed.NOTES), **choices(parsed.IDLE)}, "messages") | LOGPROBS


def chat_message() -> Schema:
    parsed = completion_requests
    part: Schema = {
        "type": "object",
        "properties": {"type": {"const": "text"}, "text": TEXT},
        "required": ["type", "text"],
    }
    own: dict[str, Schema] = {
        "role": {"enum": list(parsed.ROLES)},
        "content": {"oneOf": [TEXT, {"type": "array", "minItems": 1, "items": part}]},
    }
    return closed({**own, **notes(parsed.NOTES_OF_MESSAGE), **choices(parsed.IDLE_OF_MESSAGE)}, "role", "content")


def reply_fields(config: EdgeConfig) -> dict[str, Schema]:
    """What every way to ask for a reply has in common."""
    defaults = {
        "temperature": config.temperature,
        "top_p": config.top_p,
        "deadline_s": config.deadline,
        "model": config.models[0],
    }
    allowed: dict[str, Integers | Numbers] = {
        **sampling.INTEGERS,
        **sampling.NUMBERS,
        "deadline_s": requests.DEADLINE_S,
    }
    found = {name: or_null(ranged(these)) for name, these in allowed.items()}
    found |= dict.fromkeys(sampling.BOOLEANS, BOOLEAN)
    found |= {"model": {"enum": [*config.models, None]}, "stop": stop()}
    return {
        name: {**schema, "default": defaults[name]} if name in defaults else schema for name, schema in found.items()
    }


def title() -> Schema:
    """One line that is not blank; blanks around it do not count."""
    line = {"pattern": rf"^\s*{requests.TITLE.pattern}\s*$"}
    return {"type": "string", "maxLength": requests.MOST_TITLE_CHARACTERS, "pattern": r"\S", "allOf": [line]}


def stop() -> Schema:
    one = {"type": "string", "minLength": 1, "maxLength": sampling.MOST_STOP_CHARACTERS}
    return {"oneOf": [one, {"type": "array", "maxItems": sampling.MOST_STOPS, "items": one}, {"type": "null"}]}


def choices(idle: Mapping[str, tuple[Any, ...]]) -> dict[str, Schema]:
    """Fields that are taken where they ask for nothing."""
    return {name: {"enum": [*allowed, None]} for name, allowed in idle.items()}


def notes(names: tuple[str, ...]) -> dict[str, Schema]:
    """Fields that a client writes for itself."""
    objects = completion_requests.NOTES_THAT_ARE_OBJECTS
    kept = "Taken, shown to no model and kept nowhere."
    return {name: {"type": ["object" if name in objects else "string", "null"], "description": kept} for name in names}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


# What one field says of another: rivals are told only of tokens that are told themselves.
LOGPROBS: Schema = {
    "if": {"properties": {"top_logprobs": {"type": "integer", "minimum": 1}}, "required": ["top_logprobs"]},
    "then": {"properties": {"logprobs": {"const": True}}, "required": ["logprobs"]},
}
