"""A reply as an SSE response: a cursor that walks through a shared view, and no queue of its own.

It has no status before it is known: of events, 204 and 400 depend on how far the reply has come. A reader that takes
nothing for the send timeout is cut off, and resumes by its last event id.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edge.access import pass_of
from edge.auth import Pass
from edge.edge import Edge, Listener
from edge.errors import ApiError, BadRequest, NotNow, Unauthorized, error_body, error_response
from edge.extensions import ABORT, BODY
from edge.frames import PING, error_frame, retry_frame
from edge.tails import SharedView

HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}
MOST_FRAMES_A_SEND = 256
RETRY_MS = 500


class ReplyResponse(Response):
    """An answer made of a reply while that grows: `begin`, and unless that is an answer itself, what is `ready` time
    after time until there are `last_words`. Holds the view till then.
    """

    def __init__(self, edge: Edge, shared: SharedView) -> None:
        super().__init__()
        self._edge, self._shared, self._view = edge, shared, shared.view
        self._bell = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._sending = self._silent = False
        self._moved_at = self._loop.time()
        self._pass: Pass | None = None
        edge.tails.hold(shared)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._pass = pass_of(scope)
        gone = asyncio.create_task(_disconnected(receive))
        gone.add_done_callback(lambda _: self._bell.set())
        self._shared.bells.add(self._bell)
        try:
            await self._answer(scope, receive, send, gone)
        finally:
            self._shared.bells.discard(self._bell)
            gone.cancel()
            self._edge.tails.release(self._shared)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, gone: asyncio.Task[None]) -> None:
        refusal = await self._begin(gone)
        if refusal is not None:
            await refusal(scope, receive, send)
        elif not gone.done():
            await self._respond(scope, send, gone)

    async def _begin(self, gone: asyncio.Task[None]) -> Response | None:
        """Waits until the status is known; an answer when there will be nothing to stream."""
        raise NotImplementedError

    def _ready(self) -> bytes:
        """What can be sent now, each byte once."""
        raise NotImplementedError

    def _last_words(self) -> bytes | None:
        """What ends a stream that has nothing more to send; None while it goes on."""
        raise NotImplementedError

    def _said(self, error: ApiError) -> bytes:
        """An error after the first byte."""
        return error_frame(error_body(error.message, error.type, error.code_shown, error.param))

    def _taken_back(self) -> Unauthorized | None:
        """The answer to somebody whose key was revoked after the request was let in."""
        if self._pass is None or self._edge.access.holds(self._pass):
            return None
        return Unauthorized("the API key of this stream is revoked or expired")

    @contextlib.contextmanager
    def _listening(self) -> Iterator[Listener]:
        """A stream is open."""
        self._edge.streams += 1
        self._edge.metrics.streams.inc()
        try:
            with self._edge.listening(self._view) as listener:
                yield listener
        finally:
            self._edge.streams -= 1
            self._edge.metrics.streams.dec()

    async def _respond(self, scope: Scope, send: Send, gone: asyncio.Task[None]) -> None:
        headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
        extensions = scope["extensions"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        self._abort = extensions[ABORT]["call"]
        self._edge.pulse.join(self)
        try:
            await self._stream(extensions[BODY]["send"], gone.done)
        finally:
            self._edge.pulse.leave(self)

    async def _stream(self, send: Send, is_gone: Callable[[], bool]) -> None:
        while not is_gone():
            self._bell.clear()
            if (refusal := self._taken_back()) is not None:
                await self._send(send, self._said(refusal), more=False)
                return
            if ready := self._ready():
                await self._send(send, ready)
            elif (last := self._last_words()) is not None:
                await self._send(send, last, more=False)
                return
            elif self._silent:
                await self._send(send, PING)
            else:
                await self._bell.wait()

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        self._sending, self._silent, self._moved_at = True, False, self._loop.time()
        await send({"type": "http.response.body", "body": body, "more_body": more})
        self._sending = False

    def beat(self, now: float) -> None:
        """Called by the edge's pulse."""
        still_s = now - self._moved_at
        if not self._sending and still_s >= self._edge.config.keep_alive:
            self._silent = True
            self._bell.set()
        elif self._sending and still_s >= self._edge.config.send_timeout:
            self._edge.pulse.leave(self)
            self._edge.metrics.slow.inc()
            self._abort()


class EventStream(ReplyResponse):
    """Sends what the view has after event id `cursor`, then what it gets, until it ends."""

    def __init__(self, edge: Edge, shared: SharedView, cursor: int | None) -> None:
        super().__init__(edge, shared)
        self._cursor, self._at = cursor, 0

    async def _begin(self, gone: asyncio.Task[None]) -> Response | None:
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
            return past_the_end(cursor, self._view.newest_id)
        if self._shared.failure or self._edge.draining:
            return NotNow("this edge cannot read on now", retry_after_s=1)
        return self._taken_back()

    async def _respond(self, scope: Scope, send: Send, gone: asyncio.Task[None]) -> None:
        self._at = self._view.index_after(self._cursor)
        with contextlib.nullcontext() if scope["method"] == "HEAD" else self._listening():
            await super()._respond(scope, send, gone)

    def _ready(self) -> bytes:
        frames = self._view.frames[self._at : self._at + MOST_FRAMES_A_SEND]
        self._at += len(frames)
        return b"".join(frames)

    def _last_words(self) -> bytes | None:
        if self._view.ended:
            return b""
        if self._shared.failure:
            return self._said(NotNow("the reply log cannot be read now; resume by the last event id"))
        return retry_frame(RETRY_MS) if self._edge.draining else None


def past_the_end(cursor: int, last: int) -> BadRequest:
    message = f"Last-Event-ID={cursor}: expected at most {last}, the last event of this reply"
    return BadRequest(message, param="Last-Event-ID")


async def _disconnected(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def rings(bell: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await bell.wait()
    except TimeoutError:
        return False
    return True
