"""What a client sends, checked: bytes and header texts in, typed values out, or a BadRequest.

Strict on purpose: an unknown field, a near miss of a type or a value out of range is refused, naming the field, the
value and what is expected. Nothing here reads a clock, draws a number or does I/O.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from edge.config import LONGEST_DEADLINE_S, Defaults
from edge.errors import BadRequest, shown
from schemas.events import Sampling
from schemas.ids import ConversationId

FIELDS = ("text", "model", "max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "deadline_s")
MOST_TOKENS = 1_000_000
MOST_SEED = 2**63 - 1
MOST_TOP_K = 1_000_000
MOST_STOPS = 4
MOST_STOP_CHARACTERS = 256
MOST_EVENT_ID = 2**31
MOST_PAGE = 200
MOST_TITLE_CHARACTERS = 200

_CONVERSATION = re.compile(r"[A-Za-z0-9._~-]{1,128}")
_CLIENT_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_EVENT_ID = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class MessageRequest:
    """A posted message. `seed` None: the edge draws one; `max_tokens` 0: not asked."""

    text: str
    model: str
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    seed: int | None
    stop: tuple[str, ...]
    deadline_s: float

    @property
    def body_hash(self) -> str:
        """The same for every body that asks for the same."""
        return hashlib.sha256(orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS)).hexdigest()

    def sampling(self, drawn_seed: int) -> Sampling:
        seed = drawn_seed if self.seed is None else self.seed
        return Sampling(self.max_tokens, self.temperature, self.top_p, self.top_k, seed, self.stop)


def read_message(body: bytes, defaults: Defaults) -> MessageRequest:
    """The message in a request's body."""
    fields = _json_object(body)
    _known(fields, *FIELDS)
    return MessageRequest(
        text=_text(fields),
        model=_model(fields, defaults.models),
        max_tokens=_integer(fields, "max_tokens", 1, MOST_TOKENS, default=0),
        temperature=_number(fields, "temperature", 0, 2, default=defaults.temperature),
        top_p=_positive(fields, "top_p", 1, default=defaults.top_p),
        top_k=_integer(fields, "top_k", 0, MOST_TOP_K, default=0),
        seed=_integer(fields, "seed", 0, MOST_SEED, default=0) if fields.get("seed") is not None else None,
        stop=_stop(fields),
        deadline_s=_positive(fields, "deadline_s", LONGEST_DEADLINE_S, default=defaults.deadline_s),
    )


def read_title(body: bytes) -> str:
    """The title that a conversation is to have, without blanks around it."""
    fields = _json_object(body)
    _known(fields, "title")
    title = fields.get("title")
    given = title.strip() if isinstance(title, str) else ""
    if not given or len(given) > MOST_TITLE_CHARACTERS or _CONTROL.search(given):
        expected = f"1 to {MOST_TITLE_CHARACTERS} characters on one line, not all blank"
        raise _bad("title", title, expected)
    return given


def read_conversation(text: str) -> ConversationId:
    if not _CONVERSATION.fullmatch(text):
        raise _bad("conversation", text, "1 to 128 characters of A-Z a-z 0-9 . _ ~ -")
    return ConversationId(text)


def read_client_key(text: str | None) -> str | None:
    """The Idempotency-Key; None when the client gave none."""
    if text is not None and not _CLIENT_KEY.fullmatch(text):
        raise _bad("Idempotency-Key", text, "1 to 255 visible ASCII characters")
    return text


def read_cursor(header: str | None, query: str | None) -> int | None:
    """The last event id that the client has seen; the header counts, for EventSource keeps the first URL's query."""
    text = query if header is None else header
    if text is None:
        return None
    if not _EVENT_ID.fullmatch(text) or int(text) > MOST_EVENT_ID:
        raise _bad("Last-Event-ID", text, f"an integer from 0 to {MOST_EVENT_ID} in ASCII digits, as an event's id was")
    return int(text)


def read_limit(text: str | None, default: int = 50) -> int:
    """How many entries a page has."""
    if text is None:
        return default
    if not _EVENT_ID.fullmatch(text) or not 1 <= int(text) <= MOST_PAGE:
        raise _bad("limit", text, f"an integer from 1 to {MOST_PAGE}")
    return int(text)


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is no JSON ({error}): expected an object", code="invalid_json") from None
    if not isinstance(fields, dict):
        raise BadRequest(f"the body is {shown(fields)}: expected a JSON object", code="invalid_json")
    return fields


def _known(fields: Mapping[str, Any], *names: str) -> None:
    if unknown := sorted(fields.keys() - set(names)):
        expected = f"one of the fields {', '.join(names)}, and no other" if names[1:] else f"only the field {names[0]}"
        raise _bad(unknown[0], fields[unknown[0]], expected)


def _text(fields: Mapping[str, Any]) -> str:
    text = fields.get("text")
    if not isinstance(text, str) or not text.strip():
        raise _bad("text", text, "text that is not blank")
    return text


def _model(fields: Mapping[str, Any], models: tuple[str, ...]) -> str:
    model = fields.get("model")
    if model is None:
        return models[0]
    if not isinstance(model, str) or model not in models:
        raise BadRequest(_says("model", model, f"one of {', '.join(models)}"), param="model", code="model_not_found")
    return model


def _integer(fields: Mapping[str, Any], name: str, least: int, most: int, default: int) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if type(value) is not int or not least <= value <= most:
        raise _bad(name, value, f"an integer from {least} to {most}")
    return value


def _number(fields: Mapping[str, Any], name: str, least: float, most: float, default: float) -> float:
    value = fields.get(name)
    if value is None:
        return default
    if type(value) not in (int, float) or not least <= value <= most:
        raise _bad(name, value, f"a number from {least:g} to {most:g}")
    return float(value)


def _positive(fields: Mapping[str, Any], name: str, most: float, default: float) -> float:
    value = _number(fields, name, 0, most, default)
    if value == 0:
        raise _bad(name, value, f"a number over 0, at most {most:g}")
    return value


def _stop(fields: Mapping[str, Any]) -> tuple[str, ...]:
    value = fields.get("stop")
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    good = isinstance(stops, list) and len(stops) <= MOST_STOPS
    if not good or not all(isinstance(stop, str) and 0 < len(stop) <= MOST_STOP_CHARACTERS for stop in stops):
        expected = f"a text or a list of at most {MOST_STOPS}, each of 1 to {MOST_STOP_CHARACTERS} characters"
        raise _bad("stop", value, expected)
    return tuple(stops)


def _says(name: str, value: object, expected: str) -> str:
    return f"{name}={shown(value)}: expected {expected}"


def _bad(name: str, value: object, expected: str) -> BadRequest:
    return BadRequest(_says(shown(name)[1:-1], value, expected), param=name if name.isascii() else None)
