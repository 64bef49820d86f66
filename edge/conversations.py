"""`/v1/conversations`: what the store holds of a user's conversations, a page at a time.

A conversation that does not exist and somebody else's look alike, since a conversation is (user, id).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable
from typing import Any, TypeVar

import orjson
from starlette.requests import Request
from starlette.responses import Response

from edge.edge import caller_of, edge_of
from edge.errors import BadRequest, NotFound, NotNow, shown
from edge.requests import read_limit
from schemas.events import TurnSaved
from schemas.ids import ConversationId, MessageId
from topics.errors import TopicsError
from topics.store.contract import Conversation, Cursor

T = TypeVar("T")


async def list_conversations(request: Request) -> Response:
    edge, caller = edge_of(request), caller_of(request)
    limit = read_limit(request.query_params.get("limit"))
    before = read_page(request.query_params.get("before"))
    found = await _asked(lambda: edge.store.conversations(caller.user, limit, before))
    following = page_text(found[-1].cursor) if len(found) == limit else None
    return _json({"conversations": [_line(conversation) for conversation in found], "next": following})


async def get_conversation(request: Request) -> Response:
    edge, caller = edge_of(request), caller_of(request)
    conversation = ConversationId(request.path_params["conversation"])
    limit = read_limit(request.query_params.get("limit"))
    before = request.query_params.get("before")
    message = MessageId(before) if before else None
    found = await _asked(lambda: edge.store.messages(caller.user, conversation, limit, message))
    if not found and message is None:
        raise NotFound("no such conversation", code="conversation_not_found")
    following = found[0].turn.message if len(found) == limit else None
    return _json({"id": conversation, "messages": [_message(turn) for turn in found], "next": following})


def page_text(cursor: Cursor) -> str:
    """A place in the list as the client carries it."""
    return base64.urlsafe_b64encode(f"{cursor.updated_ms}/{cursor.conversation}".encode()).decode().rstrip("=")


def read_page(text: str | None) -> Cursor | None:
    """The reverse of `page_text`. Raises BadRequest."""
    if text is None:
        return None
    try:
        plain = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, ValueError):
        plain = ""
    updated, separator, conversation = plain.partition("/")
    if not separator or not updated.isascii() or not updated.isdecimal() or len(updated) > 18:
        raise BadRequest(f"before={shown(text)}: expected the `next` of an earlier page", param="before")
    return Cursor(int(updated), ConversationId(conversation))


async def _asked(question: Callable[[], T]) -> T:
    """The store's answer, waited for in a thread. Raises NotNow."""
    try:
        return await asyncio.to_thread(question)
    except TopicsError as error:
        raise NotNow("saved conversations cannot be read now", retry_after_s=1) from error


def _line(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "title": conversation.title,
        "messages": conversation.count,
        "created_ms": conversation.created_ms,
        "updated_ms": conversation.updated_ms,
    }


def _message(saved: TurnSaved) -> dict[str, Any]:
    return {
        "id": saved.turn.message,
        "role": saved.turn.role,
        "text": saved.turn.text,
        "status": saved.turn.status,
        "reply": saved.reply,
        "model": saved.model,
        "created_ms": saved.created_ms,
        "parent": saved.turn.parent,
    }


def _json(body: dict[str, Any]) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")
