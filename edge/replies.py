"""`/v1/replies/{reply}`: its events, its state as JSON, its stop. Only its owner learns that it exists.

A reply is looked for in the log first; one that has expired there is looked for in the store.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from edge.edge import CATCH_UP_S, Edge, caller_of, edge_of
from edge.errors import NotFound, NotNow, shown
from edge.frames import usage
from edge.requests import read_cursor
from edge.responses import json_response
from edge.saved import SavedReply, expired, saved_reply
from edge.sse import EventStream
from edge.tails import SharedView
from edge.view import ReplyView
from schemas.ids import ReplyId, UserId
from schemas.reply_records import Finished, Stopped


async def get_events(request: Request) -> Response:
    edge, caller = edge_of(request), caller_of(request)
    cursor = read_cursor(request.headers.get("Last-Event-ID"), request.query_params.get("last_event_id"))
    reply = _genuine(edge, request)
    async with _found(edge, caller.user, reply) as shared:
        if shared:
            request.state.request_id = reply
            return EventStream(edge, shared, cursor)
    raise expired(await _saved(edge, caller.user, reply))


async def get_reply(request: Request) -> Response:
    """Who asks listens: a reply that is asked for now and then is not abandoned."""
    edge, caller = edge_of(request), caller_of(request)
    reply = _genuine(edge, request)
    async with _found(edge, caller.user, reply) as shared:
        if shared:
            request.state.request_id = reply
            await _caught_up(shared)
            with edge.listening(shared.view):
                return json_response(_body(shared.view))
    return json_response((await _saved(edge, caller.user, reply)).body())


async def stop_reply(request: Request) -> Response:
    edge, caller = edge_of(request), caller_of(request)
    reply = _genuine(edge, request)
    async with _found(edge, caller.user, reply) as shared:
        if shared:
            request.state.request_id = reply
            await _caught_up(shared)
            await _stopped(edge, shared)
            return json_response({"state": shared.view.reply.state.value.lower()})
    return json_response({"state": (await _saved(edge, caller.user, reply)).state})


async def _stopped(edge: Edge, shared: SharedView) -> None:
    """Appends the stop unless the reply has ended, and waits for an end in the log. Raises NotNow."""
    if shared.view.ended:
        return
    edge.writer.tell(edge.routes.reply(shared.view.reply.id, Stopped(by="user")))
    if not await shared.until(lambda: shared.view.ended, edge.config.accept_timeout):
        raise NotNow("the stop is not in the log yet; send it again", retry_after_s=1)


def _genuine(edge: Edge, request: Request) -> ReplyId:
    text = request.path_params["reply"]
    reply = edge.genuine(text)
    if reply is None:
        raise _unknown(text)
    return reply


@contextlib.asynccontextmanager
async def _found(edge: Edge, user: UserId, reply: ReplyId) -> AsyncIterator[SharedView | None]:
    """The reply's view, once the log has shown whose it is; None when the log has nothing of it. Raises NotFound."""
    with edge.tails.reading(reply) as shared:
        seen = await edge.look_up(shared)
        if seen and shared.view.owner != user:
            raise _unknown(reply)
        yield shared if seen else None


async def _caught_up(shared: SharedView) -> None:
    """Raises NotNow when the log's past takes too long to read."""
    if not await shared.until(lambda: shared.live, CATCH_UP_S):
        raise NotNow("the reply log cannot be read in time", retry_after_s=1)


async def _saved(edge: Edge, user: UserId, reply: ReplyId) -> SavedReply:
    saved = await saved_reply(edge, user, reply)
    if saved is None:
        raise _unknown(reply)
    return saved


def _unknown(reply: str) -> NotFound:
    """The same words whether a reply does not exist, is forged, or is somebody else's."""
    return NotFound(f"no such reply: {shown(reply)}", code="reply_not_found")


def _body(view: ReplyView) -> dict[str, Any]:
    reply = view.reply
    assert reply.accepted is not None
    return {
        "id": reply.id,
        "conversation": reply.accepted.conversation,
        "model": reply.accepted.model,
        "state": reply.state.value.lower(),
        "text": reply.text,
        "usage": usage(reply.accepted.prompt_tokens, reply.last),
        "finish_reason": reply.reason if isinstance(reply.end, Finished) else None,
        "cursor": view.newest_id,
    }
