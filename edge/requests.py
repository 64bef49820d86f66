"""What a client sends, checked: bytes and header texts in, typed values out, or a BadRequest.

Strict on purpose: an unknown field, a near miss of a type or a value out of range is refused, naming the field, the
value and what is expected. Nothing here reads a clock, draws a number or does I/O.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from edge import sampling
from edge.config import LONGEST_DEADLINE_S, Defaults
from edge.errors import BadRequest
from edge.fields import Integers, Numbers, bad, json_object, number, refuse_others, says
from edge.sampling import Asked
from schemas.events import ROOT
from schemas.ids import ConversationId, MessageId

FIELDS = ("text", "parent", "system", "model", "deadline_s", "on_disconnect", *sampling.FIELDS)
ON_DISCONNECT = ("grace", "continue", "cancel")
DEADLINE_S = Numbers(0, LONGEST_DEADLINE_S, over=True)
EVENT_ID = Integers(0, 2**31)
PAGE = Integers(1, 200)
USUAL_PAGE = 50
MOST_TITLE_CHARACTERS = 200
MOST_SYSTEM_CHARACTERS = 32_768

CONVERSATION = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._~-]{1,128}")  # a URL's path cannot name . and ..
MESSAGE = re.compile(r"[A-Za-z0-9._~-]{1,128}")
CLIENT_KEY = re.compile(r"[\x21-\x7e]{1,255}")
TITLE = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_DIGITS = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class MessageRequest:
    """A posted message. `on_disconnect`: when nobody listens any more its reply ends after a while, or goes on to its
    end, or ends at once. It follows the message `parent`, the newest if None; without a text it asks for another answer
    to that one. `system`: the conversation's system prompt from now on, empty for the model's own; None: as it is.
    """

    text: str
    model: str
    asked: Asked
    deadline_s: float
    on_disconnect: str = ON_DISCONNECT[0]
    parent: MessageId | None = None
    system: str | None = None

    @property
    def body_hash(self) -> str:
        """The same for every body that asks for the same."""
        said = {"text": self.text, "model": self.model, "deadline_s": self.deadline_s}
        unusual = {} if self.on_disconnect == ON_DISCONNECT[0] else {"on_disconnect": self.on_disconnect}
        branch = {"parent": self.parent, "system": self.system}
        given = {name: value for name, value in branch.items() if value is not None}
        return hash_of(said | unusual | given | self.asked.hashed())


def read_message(body: bytes, defaults: Defaults) -> MessageRequest:
    """The message in a request's body."""
    fields = json_object(body)
    refuse_others(fields, FIELDS)
    parent = _parent(fields)
    return MessageRequest(
        text=_text(fields, parent),
        model=_model(fields, defaults.models),
        asked=sampling.read_sampling(fields, defaults),
        deadline_s=read_deadline(fields, defaults),
        on_disconnect=_on_disconnect(fields),
        parent=parent,
        system=_system(fields),
    )


def read_title(body: bytes) -> str:
    """The title that a conversation is to have, without blanks around it."""
    fields = json_object(body)
    refuse_others(fields, ("title",))
    title = fields.get("title")
    given = title.strip() if isinstance(title, str) else ""
    if not TITLE.fullmatch(given) or len(given) > MOST_TITLE_CHARACTERS:
        raise bad("title", title, f"1 to {MOST_TITLE_CHARACTERS} characters on one line, not all blank")
    return given


def read_deadline(fields: Mapping[str, Any], defaults: Defaults) -> float:
    return number(fields, "deadline_s", DEADLINE_S, default=defaults.deadline_s)


def deadline_ms(deadline_s: float) -> int:
    """In milliseconds, of which a deadline has at least one."""
    return max(1, int(deadline_s * 1000))


def hash_of(asked: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)).hexdigest()


def read_conversation(text: str) -> ConversationId:
    if not CONVERSATION.fullmatch(text):
        raise bad("conversation", text, "1 to 128 characters of A-Z a-z 0-9 . _ ~ -, neither . nor ..")
    return ConversationId(text)


def read_client_key(text: str | None) -> str | None:
    """The Idempotency-Key; None when the client gave none."""
    if text is not None and not CLIENT_KEY.fullmatch(text):
        raise bad("Idempotency-Key", text, "1 to 255 visible ASCII characters")
    return text


def read_cursor(header: str | None, query: str | None) -> int | None:
    """The last event id that the client has seen; the header counts, for EventSource keeps the first URL's query."""
    text = query if header is None else header
    if text is None:
        return None
    if not _DIGITS.fullmatch(text) or int(text) > EVENT_ID.most:
        raise bad("Last-Event-ID", text, f"{EVENT_ID} in ASCII digits, as an event's id was")
    return int(text)


def read_limit(text: str | None) -> int:
    """How many entries a page has."""
    if text is None:
        return USUAL_PAGE
    if not _DIGITS.fullmatch(text) or not PAGE.least <= int(text) <= PAGE.most:
        raise bad("limit", text, str(PAGE))
    return int(text)


def _on_disconnect(fields: Mapping[str, Any]) -> str:
    wanted = fields.get("on_disconnect")
    if wanted is None:
        return ON_DISCONNECT[0]
    if wanted not in ON_DISCONNECT:
        raise bad("on_disconnect", wanted, f"one of {', '.join(ON_DISCONNECT)}")
    return str(wanted)


def _parent(fields: Mapping[str, Any]) -> MessageId | None:
    parent = fields.get("parent")
    if parent is None:
        return None
    if not isinstance(parent, str) or not MESSAGE.fullmatch(parent):
        raise bad("parent", parent, f"the id of a message of the conversation, or {ROOT!r} for a new beginning")
    return MessageId(parent)


def _system(fields: Mapping[str, Any]) -> str | None:
    system = fields.get("system")
    if system is None:
        return None
    if not isinstance(system, str) or len(system) > MOST_SYSTEM_CHARACTERS:
        raise bad("system", system, f"text of at most {MOST_SYSTEM_CHARACTERS} characters")
    if fields.get("text") is None:
        raise bad("system", system, "a text beside it: a question that is asked again keeps its system prompt")
    return system if system.strip() else ""


def _text(fields: Mapping[str, Any], parent: MessageId | None) -> str:
    """The text; empty for another answer to `parent`."""
    text = fields.get("text")
    if text is None and parent not in (None, ROOT):
        return ""
    if not isinstance(text, str) or not text.strip():
        raise bad("text", text, "text that is not blank")
    return text


def _model(fields: Mapping[str, Any], models: tuple[str, ...]) -> str:
    model = fields.get("model")
    if model is None:
        return models[0]
    if not isinstance(model, str) or model not in models:
        raise BadRequest(says("model", model, f"one of {', '.join(models)}"), param="model", code="model_not_found")
    return model
