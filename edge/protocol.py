"""One connection: uvicorn's HTTP/1.1, bounded in what a client can make it hold and in how long it can keep it waiting.

A head has a size and a time, a body has to arrive, a reader has to read, and there are only so many connections. Who
breaks a bound is told so, unless a response is on its way to it: then the connection is cut.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from edge.errors import ApiError, BadRequest, HeadTooLarge, NotNow, TooSlow, error_body
from edge.sse import ABORT

MOST_HEAD = 64 * 1024
MOST_PIPELINED = 16
HEAD_TIMEOUT_S = 10.0
BODY_PAUSE_S = 10.0
BODY_TIMEOUT_S = 60.0
UNSENT = 64 * 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """`of_address`: connections from one address, at most; 0: no limit. `addresses` counts those that are open."""

    send_timeout_s: float
    connections: int
    of_address: int
    addresses: Counter[str] = field(default_factory=Counter)


class Served(uvicorn.Config):
    """What uvicorn is told, and the bounds of this edge."""

    def __init__(self, app: ASGIApp, bounds: Bounds, **told: Any) -> None:
        super().__init__(cast(ASGI3Application, app), http=EdgeProtocol, **told)
        self.bounds = bounds


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

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        set_options(transport.get_extra_info("socket"), self.config.bounds.send_timeout_s)
        self._address = self.client[0] if self.client else ""
        bounds = self.config.bounds
        bounds.addresses[self._address] += 1
        if len(self.connections) > bounds.connections or 0 < bounds.of_address < bounds.addresses[self._address]:
            self._turn_away(NotNow("this edge has as many connections as it may", retry_after_s=1))
        else:
            self._wait_for_client(HEAD_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        addresses = self.config.bounds.addresses
        addresses[self._address] -= 1
        if not addresses[self._address]:
            del addresses[self._address]
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
        super()._start_asgi_task(cycle, without_chunks(cycle, app) if cycle.scope["http_version"] == "1.0" else app)

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
        body = error_body(error.message, error.type, error.code_shown)
        own = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        head = b"".join(b"%b: %b\r\n" % header for header in (*self.server_state.default_headers, *own))
        self.transport.write(STATUS_LINE[error.status] + head + b"\r\n" + body)
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
