"""`/v1/conversations`: what the store holds of a user's conversations, a page at a time; and their names and their end.

A conversation that does not exist and somebody else's look alike, since a conversation is (user, id). A change is
appended to `messages`, where intake decides it in its turn, and is answered once the store shows it: from then on
every edge does.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from edge.bodies import body_of
from edge.edge import Edge, caller_of, edge_of
from edge.errors import BadRequest, NotFound, NotNow, shown
from edge.fields import bad
from edge.requests import read_limit, read_title
from edge.responses import json_response
from schemas.events import ConversationDeleted, ConversationRenamed, TurnSaved
from schemas.ids import ConversationId, MessageId, UserId
from topics.catalog import TURNS
from topics.errors import TopicsError
from topics.log import Place
from topics.store.contract import Conversation, Cursor, Store
from topics.store.export import exported_conversation, exported_user

T = TypeVar("T")

FRESH_WAIT_S = 0.2
POLL_EVERY_S = 0.02
ASK_EVERY_S = 0.2


async def list_conversations(request: Request) -> Response:
    edge, caller = edge_of(request), caller_of(request)
    limit = read_limit(request.query_params.get("limit"))
    before = read_page(request.query_params.get("before"))
    found = await edge.stored(lambda store: store.conversations(caller.user, limit, before))
    following = page_text(found[-1].cursor) if len(found) == limit else None
    return json_response({"conversations": [_line(conversation) for conversation in found], "next": following})


async def get_conversation(request: Request) -> Response:
    edge, caller = edge_of(request), caller_of(request)
    conversation = _named(request)
    limit = read_limit(request.query_params.get("limit"))
    before, through = (_message_of(request.query_params.get(name)) for name in ("before", "through"))
    page = await edge.stored(lambda store: _page(store, caller.user, conversation, limit, before, through))
    return json_response(page)


def _page(
    store: Store,
    user: UserId,
    conversation: ConversationId,
    limit: int,
    before: MessageId | None,
    through: MessageId | None,
) -> dict[str, Any]:
    """The end of the newest branch, or of the one `through` a message, or what there is `before` a message."""
    line = store.conversation(user, conversation)
    if line is None:
        raise _unknown(conversation)
    if before is not None:
        *found, last = store.path(user, conversation, limit + 1, before) or (None,)
        if last is None:
            raise _no_page(before)
    else:
        tip = store.tip(user, conversation, through) if through is not None else None
        if through is not None and tip is None:
            raise bad("through", through, "the id of a message of the conversation")
        found = [*store.path(user, conversation, limit, tip)]
    siblings = store.children(user, conversation, [saved.turn.parent for saved in found])
    return {
        "id": conversation,
        "title": line.title,
        "system": store.system(user, conversation),
        "messages": [_message(saved, siblings[saved.turn.parent]) for saved in found],
        "next": found[0].turn.message if len(found) == limit and found[0].turn.parent else None,
    }


async def export_conversation(request: Request) -> Response:
    edge, caller, conversation = edge_of(request), caller_of(request), _named(request)
    pieces = exported_conversation(edge.store, caller.user, conversation)
    first = await _begun(edge, pieces)
    if first is None:
        raise _unknown(conversation)
    return _download(edge, first, pieces, f"{conversation}.json")


async def export_all(request: Request) -> Response:
    edge, caller = edge_of(request), caller_of(request)
    pieces = exported_user(edge.store, caller.user)
    return _download(edge, await _begun(edge, pieces) or "", pieces, "conversations.json")


async def _begun(edge: Edge, pieces: Iterator[str]) -> str | None:
    """The first piece of an export, so that what goes wrong at once has a status. Raises NotNow."""
    return await edge.stored(lambda _: next(pieces, None))


def _download(edge: Edge, first: str, pieces: Iterator[str], name: str) -> Response:
    """A document as its pieces are read; it breaks off, as no JSON does, where the store does."""

    async def whole() -> AsyncIterator[str]:
        yield first
        while (piece := await edge.stored(lambda _: next(pieces, None))) is not None:
            yield piece

    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return StreamingResponse(whole(), headers=headers, media_type="application/json")


async def rename_conversation(request: Request) -> Response:
    edge, caller, conversation = edge_of(request), caller_of(request), _named(request)
    async with body_of(request) as body:
        title = read_title(body)
    await _existing(edge, caller.user, conversation)

    def renamed(store: Store) -> Conversation | None:
        line = store.conversation(caller.user, conversation)
        if line is None:
            raise _unknown(conversation)
        return line if line.title == title else None

    return json_response(_line(await _done(edge, ConversationRenamed(caller.user, conversation, title), renamed)))


async def delete_conversation(request: Request) -> Response:
    edge, caller, conversation = edge_of(request), caller_of(request), _named(request)
    before_ms = await edge.stored(lambda store: store.deleted_ms(caller.user, conversation))
    await _existing(edge, caller.user, conversation)

    def deleted(store: Store) -> bool | None:
        return store.deleted_ms(caller.user, conversation) > before_ms or None

    await _done(edge, ConversationDeleted(caller.user, conversation), deleted)
    return Response(status_code=204)


async def _existing(edge: Edge, user: UserId, conversation: ConversationId) -> None:
    """Raises NotFound for what is not there though all is saved that was said until now; NotNow if that takes long."""

    async def shown() -> bool:
        return await edge.stored(lambda store: store.conversation(user, conversation)) is not None

    if await shown():
        return
    await asyncio.sleep(FRESH_WAIT_S)  # a message is accepted a moment before it is on its way to the store
    turns = Place(TURNS, edge.routes.of_user(user))
    end = await edge.stored(lambda _: edge.progress.end(turns))
    until = time.monotonic() + edge.config.accept_timeout
    while not await edge.stored(lambda _: edge.progress.reached(turns, end)):
        if await shown():
            return
        if time.monotonic() > until:
            raise NotNow("what was said last is not saved yet; send it again", retry_after_s=1)
        await asyncio.sleep(ASK_EVERY_S)
    if not await shown():
        raise _unknown(conversation)


async def _done(edge: Edge, asked: ConversationRenamed | ConversationDeleted, done: Callable[[Store], T | None]) -> T:
    """Appends what is asked for, and waits until the store shows it. Raises NotNow: it may or may not be done then."""
    try:
        async with asyncio.timeout(edge.config.accept_timeout):
            await edge.writer.send(edge.routes.message(asked.user, asked))
            while (result := await edge.stored(done)) is None:
                await asyncio.sleep(POLL_EVERY_S)
            return result
    except TimeoutError:
        what = f"was not done in {edge.config.accept_timeout:g} s"
    except TopicsError:
        what = "was not taken by the log"
    raise NotNow(f"what was asked for {what}; send it again", retry_after_s=1)


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
        raise _no_page(text)
    return Cursor(int(updated), ConversationId(conversation))


def _no_page(text: str) -> BadRequest:
    return BadRequest(f"before={shown(text)}: expected the `next` of an earlier page", param="before")


def _named(request: Request) -> ConversationId:
    return ConversationId(request.path_params["conversation"])


def _unknown(conversation: ConversationId) -> NotFound:
    message = f"no such conversation: {shown(conversation)}; GET /v1/conversations lists the caller's"
    return NotFound(message, code="conversation_not_found")


def _line(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "title": conversation.title,
        "messages": conversation.count,
        "created_ms": conversation.created_ms,
        "updated_ms": conversation.updated_ms,
    }


def _message_of(text: str | None) -> MessageId | None:
    return None if text is None else MessageId(text)


def _message(saved: TurnSaved, siblings: tuple[MessageId, ...]) -> dict[str, Any]:
    """`siblings`: the messages that follow the same one, itself among them, oldest first."""
    return {
        "id": saved.turn.message,
        "role": saved.turn.role,
        "text": saved.turn.text,
        "status": saved.turn.status,
        "reply": saved.reply,
        "model": saved.model,
        "created_ms": saved.created_ms,
        "parent": saved.turn.parent,
        "siblings": siblings,
    }
