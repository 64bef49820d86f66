"""A reply as an SSE response: a cursor that walks through a shared view's frames, and no queue of its own.

It has no status before it is known: 204 and 400 depend on how far the reply has come. A reader that takes nothing for
the send timeout is cut off, and resumes by its last event id.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uuid_utils import uuid7

from edge.access import pass_of
from edge.auth import Pass
from edge.edge import Edge
from edge.errors import ApiError, BadRequest, NotNow, Unauthorized, error_body, error_response
from edge.frames import PING, error_frame, retry_frame
from edge.tails import SharedView
from schemas.reply_records import ListenerAttached, ListenerDetached

HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}
MOST_FRAMES_A_SEND = 256
RETRY_MS = 500
ABORT = "laneway.abort"


class EventStream(Response):
    """Sends what the view has after event id `cursor`, then what it gets, until it ends. Holds the view till then."""

    def __init__(self, edge: Edge, shared: SharedView, cursor: int | None) -> None:
        super().__init__()
        self._edge, self._shared, self._view, self._cursor = edge, shared, shared.view, cursor
        self._bell = asyncio.Event()
        self._pass: Pass | None = None
        edge.tails.hold(shared)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._pass = pass_of(scope)
        gone = asyncio.create_task(_disconnected(receive))
        gone.add_done_callback(lambda _: self._bell.set())
        self._shared.bells.add(self._bell)
        try:
            refusal = await self._reach_cursor(gone)
            if refusal is not None:
                await refusal(scope, receive, send)
            elif not gone.done():
                await self._respond(scope, send, gone)
        finally:
            self._shared.bells.discard(self._bell)
            gone.cancel()
            self._edge.tails.release(self._shared)

    async def _reach_cursor(self, gone: asyncio.Task[None]) -> Response | None:
        """Waits until the reply has come as far as the cursor; an answer when there will be nothing to stream."""
        view, cursor = self._view, -1 if self._cursor is None else self._cursor
        while not gone.done():
            self._bell.clear()
            if view.ended and cursor == view.newest_id:
                return Response(status_code=204)
            if cursor <= view.newest_id:
                return None
            if refusal := self._refusal(cursor):
                return error_response(refusal)
            await self._bell.wait()
        return None

    def _refusal(self, cursor: int) -> ApiError | None:
        if self._view.ended:
            return BadRequest(
                f"Last-Event-ID={cursor}: expected at most {self._view.newest_id}, the last event of this reply",
                param="Last-Event-ID",
            )
        if self._shared.failure or self._edge.draining:
            return NotNow("this edge cannot read on now", retry_after_s=1)
        return self._taken_back()

    async def _respond(self, scope: Scope, send: Send, gone: asyncio.Task[None]) -> None:
        headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        with _listening(self._edge, self._shared):
            try:
                await self._stream(send, gone.done)
            except TimeoutError:
                self._edge.metrics.slow.inc()
                if abort := scope.get("extensions", {}).get(ABORT):
                    abort["call"]()
                    await gone

    async def _stream(self, send: Send, is_gone: Callable[[], bool]) -> None:
        """Raises TimeoutError when a send does not finish in time."""
        at, frames = self._view.index_after(self._cursor), self._view.frames
        while not is_gone():
            self._bell.clear()
            if (refusal := self._taken_back()) is not None:
                await self._send(send, _as_frame(refusal), more=False)
                return
            if at < len(frames):
                ready = frames[at : at + MOST_FRAMES_A_SEND]
                at += len(ready)
                await self._send(send, b"".join(ready))
            elif (last := self._last_words()) is not None:
                await self._send(send, last, more=False)
                return
            elif not await _rings(self._bell, self._edge.config.keep_alive):
                await self._send(send, PING)

    def _last_words(self) -> bytes | None:
        """What ends a stream that has nothing more to send; None while it goes on."""
        if self._view.ended:
            return b""
        if self._shared.failure:
            return _as_frame(NotNow("the reply log cannot be read now; resume by the last event id"))
        return retry_frame(RETRY_MS) if self._edge.draining else None

    def _taken_back(self) -> Unauthorized | None:
        """The answer to somebody whose key was revoked after the request was let in."""
        if self._pass is None or self._edge.access.holds(self._pass):
            return None
        return Unauthorized("the API key of this stream is revoked or expired")

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        async with asyncio.timeout(self._edge.config.send_timeout):
            await send({"type": "http.response.body", "body": body, "more_body": more})


def _as_frame(error: ApiError) -> bytes:
    return error_frame(error_body(error.message, error.type, error.code))


@contextlib.contextmanager
def _listening(edge: Edge, shared: SharedView) -> Iterator[None]:
    """Tells the log and the metrics that a stream is open; an ended reply needs no listener."""
    reply, stream, open_reply = shared.view.reply.id, uuid7().hex, not shared.view.ended
    edge.streams += 1
    edge.metrics.streams.inc()
    if open_reply:
        edge.writer.tell(edge.routes.reply(reply, ListenerAttached(edge.incarnation, stream)))
    try:
        yield
    finally:
        edge.streams -= 1
        edge.metrics.streams.dec()
        if open_reply:
            edge.writer.tell(edge.routes.reply(reply, ListenerDetached(edge.incarnation, stream)))


async def _disconnected(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _rings(bell: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await bell.wait()
    except TimeoutError:
        return False
    return True
