"""One connection: uvicorn's HTTP/1.1, bounded in what a client can make it hold and in how long it can keep it waiting.

A head has a size and a time, a body has to arrive, a reader has to read, there are only so many connections, and all
together hold only so much of requests that are not answered. Who breaks a bound is told so, unless a response is on its
way to it: then the connection is cut.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, cast

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGIReceiveEvent, ASGISendCallable, Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from edge.errors import ApiError, BadRequest, HeadTooLarge, NotNow, TooSlow, error_response, request_id
from edge.extensions import ABORT, GONE
from edge.metrics import Metrics
from edge.room import Room, Share

MOST_HEAD = 64 * 1024
MOST_PIPELINED = 16
HEAD_TIMEOUT_S = 10.0
BODY_PAUSE_S = 10.0
BODY_TIMEOUT_S = 60.0
UNSENT = 64 * 1024
NO_METHOD = "none"
HEADER_COST = 160  # what Python takes for a header beside its bytes


@dataclass(frozen=True, slots=True)
class Bounds:
    """`of_address`: connections from one address, at most; 0: no limit. `addresses` counts those that are open, `room`
    is for what they hold of requests that are not answered.
    """

    send_timeout_s: float
    connections: int
    of_address: int
    addresses: Counter[str] = field(default_factory=Counter)
    room: Room = field(default_factory=Room)

    def enter(self, address: str, connections: int) -> bool:
        """Counts a connection; False for one too many of the so many that are open."""
        self.addresses[address] += 1
        return connections <= self.connections and not 0 < self.of_address < self.addresses[address]

    def leave(self, address: str) -> None:
        self.addresses[address] -= 1
        if not self.addresses[address]:
            del self.addresses[address]


class Served(uvicorn.Config):
    """What uvicorn is told, this edge's bounds, and where it counts; `tls` if it speaks that, which `http` sees to."""

    def __init__(
        self, app: ASGIApp, bounds: Bounds, metrics: Metrics, tls: ssl.SSLContext | None = None, **told: Any
    ) -> None:
        super().__init__(cast(ASGI3Application, app), **told)
        self.bounds, self.metrics, self.tls = bounds, metrics, tls


class EdgeProtocol(HttpToolsProtocol):
    """Also puts the connection's `abort` into the scope: closing waits for a reader that may never read.

    Of a pipelining client uvicorn tells only the newest request that it has gone; here the one that runs learns it too.
    """

    config: Served
    _running: RequestResponseCycle | None = None
    _refusal: ApiError | None = None
    _waiting: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None
    _in_message = _in_body = False
    _unseen = _head = 0
    _body_began = 0.0
    _share: Share

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        set_options(transport.get_extra_info("socket"), self.config.bounds.send_timeout_s)
        self._address = self.client[0] if self.client else ""
        self._heads: deque[int] = deque()
        bounds = self.config.bounds
        self._share = Share(bounds.room)
        if bounds.enter(self._address, len(self.connections)):
            self._wait_for_client(HEAD_TIMEOUT_S)
        else:
            self._turn_away(NotNow("this edge has as many connections as it may", retry_after_s=1))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.config.bounds.leave(self._address)
        self._share.close()
        for timer in (self._waiting, self._stall):
            if timer is not None:
                timer.cancel()
        self._disconnect()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._waiting is None and not self._in_body:
            self._wait_for_client(HEAD_TIMEOUT_S)
        self._unseen += len(data)
        super().data_received(data)
        if self._unseen > MOST_HEAD:
            self._turn_away(HeadTooLarge(f"the head of a request is over {MOST_HEAD} bytes"))
        elif not self._share.fits(self._held()):
            self._turn_away(NotNow("this edge holds as many long requests as it may", retry_after_s=1))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: {"call": self._cut}}
        self._in_message, self._head = True, 0
        self._wait_for_client(HEAD_TIMEOUT_S)

    def on_url(self, url: bytes) -> None:
        self._measure(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._measure(len(name) + len(value) + len(": \r\n"))
        if not self._in_body:  # what follows a body is no header
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        self._unseen, self._in_body, self._body_began = 0, True, self.loop.time()
        self._heads.append(self._head + HEADER_COST * len(self.headers))
        super().on_headers_complete()
        if len(self.pipeline) > MOST_PIPELINED:
            self._refuse(BadRequest(f"more than {MOST_PIPELINED} requests wait on one connection"))
        self._wait_for_client(BODY_PAUSE_S)

    def on_body(self, body: bytes) -> None:
        self._unseen = 0
        if self.loop.time() - self._body_began > BODY_TIMEOUT_S:
            self._refuse(TooSlow(f"the body did not arrive in {BODY_TIMEOUT_S:g} s"))
        self._wait_for_client(BODY_PAUSE_S)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_message = self._in_body = False
        self._unseen = 0
        self._stop_waiting()

    def on_response_complete(self) -> None:
        self._heads.popleft()
        self._share.fits(self._held())
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        self._turn_away(self._refusal or BadRequest("this is no HTTP/1.1 request"))

    def pause_writing(self) -> None:
        super().pause_writing()
        # A stream has a timeout of its own, which counts it; this one is for every other answer.
        self._stall = self.loop.call_later(self.config.bounds.send_timeout_s + 1, self._cut)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self._cut()
        else:
            super().timeout_keep_alive_handler()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        cycle.scope["extensions"][GONE] = {"call": lambda: cycle.disconnected}
        app = without_chunks(cycle, app) if cycle.scope["http_version"] == "1.0" else app
        super()._start_asgi_task(cycle, self._counting_down(app))

    def _counting_down(self, app: ASGI3Application) -> ASGI3Application:
        """What the application has read of a body is not held here any more."""

        async def reading(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
            async def read() -> ASGIReceiveEvent:
                message = await receive()
                self._share.fits(self._held())
                return message

            await app(scope, read, send)

        return reading

    def _held(self) -> int:
        """Bytes of the requests that are not answered: heads, what nobody has read of bodies, and what is coming."""
        coming = HEADER_COST * len(self.headers) if self._in_message and not self._in_body else 0
        cycles = [cycle for cycle, _ in self.pipeline]
        if self._running is not None and not self._running.response_complete:
            cycles.append(self._running)
        return sum(self._heads) + self._unseen + coming + sum(len(cycle.body) for cycle in cycles)

    def _measure(self, size: int) -> None:
        self._head += size
        if self._head > MOST_HEAD:
            self._refuse(HeadTooLarge(f"the head of a request is over {MOST_HEAD} bytes"))

    def _refuse(self, error: ApiError) -> None:
        """From within the parser, which then stops and has `send_400_response` called."""
        self._refusal = error
        raise httptools.HttpParserError(error.message)

    def _wait_for_client(self, seconds: float) -> None:
        self._stop_waiting()
        self._waiting = self.loop.call_later(seconds, self._waited)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _waited(self) -> None:
        self._waiting = None
        if self.flow.read_paused:
            self._wait_for_client(BODY_PAUSE_S)
        elif self._in_message:
            self._turn_away(TooSlow("the request did not arrive in time"))
        elif self._running is None or self._running.response_complete:
            self.transport.close()

    def _turn_away(self, error: ApiError) -> None:
        """Answers and closes; a client that is in the middle of an answer is cut off instead."""
        if self.transport.is_closing():
            return
        running = self._running
        if running is not None and running.response_started and not running.response_complete:
            self._cut()
            return
        if self._in_body and self.cycle.response_complete:
            self.transport.close()  # it has its answer, which needed no body
            return
        self.config.metrics.answered(self.scope["method"] if self._in_body else NO_METHOD, error.status)
        self.config.metrics.refused(error.code_shown)
        answer = error_response(error)
        own = [*answer.raw_headers, (b"x-request-id", request_id().encode()), (b"connection", b"close")]
        head = b"".join(b"%b: %b\r\n" % header for header in (*self.server_state.default_headers, *own))
        self.transport.write(STATUS_LINE[error.status] + head + b"\r\n" + bytes(answer.body))
        self.transport.close()
        self._disconnect()

    def _cut(self) -> None:
        """Resets the connection: what the kernel holds is dropped, and a reader that comes back learns it at once."""
        connection = self.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _disconnect(self) -> None:
        for cycle in (self.cycle, self._running):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()


def set_options(connection: socket.socket, send_timeout_s: float) -> None:
    """Small writes leave at once; who takes nothing, or has vanished, is noticed; the kernel holds little for anybody:
    left alone, it would hold megabytes for a near reader who is stopped.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNSENT)
    for option, value in (
        (socket.TCP_NODELAY, 1),
        (socket.TCP_USER_TIMEOUT, int(2 * send_timeout_s * 1000)),  # a reader that is there but slow is cut before
        (socket.TCP_NOTSENT_LOWAT, UNSENT),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def without_chunks(cycle: RequestResponseCycle, app: ASGI3Application) -> ASGI3Application:
    """For HTTP/1.0, which knows no chunks: a body without Content-Length ends with its connection."""

    async def plain(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                cycle.chunked_encoding = False
            else:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, sent)

    return plain
