"""uvicorn, with the two things it lacks here: a stream can be cut off at once, and a stop drains before it closes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from edge.sse import ABORT, BODY

GRACE_S = 12
KEEP_ALIVE_S = 65


class EdgeProtocol(HttpToolsProtocol):
    """Puts the connection's `abort` into the scope: closing waits for a reader that may never read.

    Of a pipelining client uvicorn tells only the newest request that it has gone; here the one that runs learns it too.
    """

    _running: RequestResponseCycle | None = None

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: {"call": self.transport.abort}}

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()


class Direct:
    """Puts the server's own `send` into the scope: a stream's bodies need not pass each middleware, token by token."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["extensions"][BODY] = {"send": send}
        await self._app(scope, receive, send)


class EdgeServer(uvicorn.Server):
    """`drain` is awaited after SIGTERM or SIGINT, while requests are still served; then the port is closed.

    A second signal calls `hurry`. None is raised again afterwards: a drained edge has exited well.
    """

    def __init__(
        self, app: ASGIApp, address: tuple[str, int], drain: Callable[[], Awaitable[None]], hurry: Callable[[], None]
    ) -> None:
        super().__init__(
            uvicorn.Config(
                Direct(app),
                host=address[0],
                port=address[1],
                loop="uvloop",
                http=EdgeProtocol,
                ws="none",
                lifespan="on",
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._drain, self._hurry = drain, hurry

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            for signum in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(signum, self.handle_exit, signum, None)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self._hurry()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._drain()
        await super().shutdown(sockets)
