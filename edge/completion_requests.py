"""The body of a chat completion, checked: what Laneway can do is taken, what asks for nothing is let pass, and what it
cannot do is refused by name.

Stock clients send many fields that only say what would hold anyway: IDLE lists those, with the values that ask for
nothing. Any other value of them is refused, so that nobody believes to have got what was ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from edge import sampling
from edge.config import Defaults
from edge.errors import BadRequest, NotFound
from edge.fields import bad, boolean, integer, json_object, refuse_others, says
from edge.requests import hash_of, read_deadline
from edge.sampling import MAX_TOKENS, Asked, read_sampling
from schemas.events import ChatMessage

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
MOST_MESSAGES = 4096

_NOTHING: tuple[Any, ...] = ([], {})
IDLE: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "audio": _NOTHING,
    "function_call": ("none", "auto"),
    "functions": _NOTHING,
    "logit_bias": _NOTHING,
    "modalities": (["text"],),
    "moderation": _NOTHING,
    "parallel_tool_calls": (True, False),
    "prediction": _NOTHING,
    "prompt_cache_retention": ("in_memory", "in-memory"),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "tool_choice": ("none", "auto"),
    "tools": _NOTHING,
    "verbosity": ("medium",),
    "web_search_options": _NOTHING,
    "add_generation_prompt": (True,),
    "add_special_tokens": (False,),
    "allowed_token_ids": _NOTHING,
    "bad_words": _NOTHING,
    "best_of": (1,),
    "chat_template_kwargs": _NOTHING,
    "continue_final_message": (False,),
    "echo": (False,),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1, 1.0),
    "min_p": (0, 0.0),
    "priority": (0,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True, False),
    "stop_token_ids": _NOTHING,
    "use_beam_search": (False,),
}
NOTES = ("user", "safety_identifier", "prompt_cache_key", "metadata")
NOTES_THAT_ARE_OBJECTS = ("metadata",)
IDLE_OF_MESSAGE: Mapping[str, tuple[Any, ...]] = {
    "annotations": _NOTHING,
    "audio": _NOTHING,
    "function_call": _NOTHING,
    "refusal": _NOTHING,
    "tool_calls": _NOTHING,
}
NOTES_OF_MESSAGE = ("name",)
IDLE_OF_STREAM: Mapping[str, tuple[Any, ...]] = {"include_obfuscation": (False,), "continuous_usage_stats": (False,)}
FIELDS = (
    "messages",
    "model",
    "max_completion_tokens",
    "stream",
    "stream_options",
    "deadline_s",
    *sampling.FIELDS,
    *NOTES,
    *IDLE,
)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A chat completion. `usage`: a stream is to end with the counts."""

    messages: tuple[ChatMessage, ...]
    model: str
    asked: Asked
    deadline_s: float
    stream: bool
    usage: bool

    @property
    def body_hash(self) -> str:
        """The same for every body that asks for the same reply, streamed or whole."""
        said = [[message.role, message.text] for message in self.messages]
        return hash_of(
            {"messages": said, "model": self.model, "deadline_s": self.deadline_s, **self.asked.hashed()},
        )


def read_completion(body: bytes, defaults: Defaults) -> CompletionRequest:
    """The request in a body. Raises BadRequest, or NotFound for a model that is not served."""
    fields = json_object(body)
    refuse_others(fields, FIELDS)
    _refuse_wishes(fields, IDLE)
    for name in NOTES:
        _note(fields, name)
    stream = boolean(fields, "stream")
    return CompletionRequest(
        messages=_messages(fields.get("messages")),
        model=_model(fields, defaults.models),
        asked=read_sampling({**fields, "max_tokens": _max_tokens(fields)}, defaults),
        deadline_s=read_deadline(fields, defaults),
        stream=stream,
        usage=_usage(fields, stream),
    )


def _messages(given: Any) -> tuple[ChatMessage, ...]:
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_MESSAGES:
        raise bad("messages", given, f"a list of 1 to {MOST_MESSAGES} messages")
    return tuple(_message(f"messages[{n}]", message) for n, message in enumerate(given))


def _message(at: str, message: Any) -> ChatMessage:
    if not isinstance(message, dict):
        raise bad(at, message, "an object with role and content")
    for name in sorted(message.keys() - {"role", "content", *NOTES_OF_MESSAGE, *IDLE_OF_MESSAGE}):
        if message[name] is not None:
            raise bad(f"{at}.{name}", message[name], "role and content alone, for the model is shown nothing else")
    _refuse_wishes(message, IDLE_OF_MESSAGE, f"{at}.")
    for name in NOTES_OF_MESSAGE:
        _note(message, name, f"{at}.")
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise bad(f"{at}.role", role, f"one of {', '.join(ROLES)}")
    return ChatMessage(ROLES[role], _content(f"{at}.content", message.get("content")))


def _content(at: str, content: Any) -> str:
    """The text; parts of it are put on lines of their own."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise bad(at, content, "text, or a list of text parts")
    return "\n".join(_part(f"{at}[{n}]", part) for n, part in enumerate(content))


def _part(at: str, part: Any) -> str:
    if not isinstance(part, dict) or part.get("type") != "text":
        kind = part.get("type") if isinstance(part, dict) else part
        raise bad(f"{at}.type", kind, "'text', the only kind of part that the model reads")
    if not isinstance(part.get("text"), str):
        raise bad(f"{at}.text", part.get("text"), "text")
    return str(part["text"])


def _model(fields: Mapping[str, Any], models: tuple[str, ...]) -> str:
    model = fields.get("model")
    if model is None:
        return models[0]
    if not isinstance(model, str):
        raise bad("model", model, f"one of {', '.join(models)}")
    if model not in models:
        raise NotFound(says("model", model, f"one of {', '.join(models)}"), param="model", code="model_not_found")
    return model


def _max_tokens(fields: Mapping[str, Any]) -> int | None:
    """OpenAI's newer name and its older one say the same."""
    older = integer(fields, "max_tokens", MAX_TOKENS, default=0)
    newer = integer(fields, "max_completion_tokens", MAX_TOKENS, default=0)
    if older and newer and older != newer:
        raise bad("max_tokens", older, f"the same as max_completion_tokens={newer}, or one of the two")
    return newer or older or None


def _usage(fields: Mapping[str, Any], stream: bool) -> bool:
    options = fields.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict) or not stream:
        raise bad("stream_options", options, "an object, and only with stream=true")
    refuse_others({f"stream_options.{name}": value for name, value in options.items()}, _STREAM_OPTIONS)
    _refuse_wishes(options, IDLE_OF_STREAM, "stream_options.")
    return boolean(options, "include_usage")


_STREAM_OPTIONS = tuple(f"stream_options.{name}" for name in ("include_usage", *IDLE_OF_STREAM))


def _note(fields: Mapping[str, Any], name: str, at: str = "") -> None:
    """What the client writes for itself: it changes nothing of a reply and is kept nowhere."""
    kind = dict if name in NOTES_THAT_ARE_OBJECTS else str
    if fields.get(name) is not None and not isinstance(fields[name], kind):
        raise bad(f"{at}{name}", fields[name], "an object" if kind is dict else "text")


def _refuse_wishes(fields: Mapping[str, Any], idle: Mapping[str, tuple[Any, ...]], at: str = "") -> None:
    """Refuses what asks for something that Laneway does not do; the JSON is compared, for Python's 1 is also true."""
    for name in fields.keys() & idle.keys():
        value, allowed = fields[name], idle[name]
        if value is None or orjson.dumps(value) in map(orjson.dumps, allowed):
            continue
        choices = " or ".join(orjson.dumps(choice).decode() for choice in allowed)
        raise BadRequest(
            says(f"{at}{name}", value, f"{choices}: nothing else is supported"),
            param=f"{at}{name}",
            code="unsupported_value",
        )
