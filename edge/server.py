"""uvicorn, whose connections are bounded (`protocol.py`), and whose stop drains before it closes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import FrameType

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from edge.config import EdgeConfig
from edge.extensions import BODY
from edge.metrics import Metrics
from edge.protocol import Bounds, EdgeProtocol, Served
from edge.tls import Handshake, tls_of

logger = logging.getLogger(__name__)

GRACE_S = 12
KEEP_ALIVE_S = 65
HSTS_S = 31_536_000
SPARE_FILES = 256


def security_headers(config: EdgeConfig) -> list[tuple[str, str]]:
    """On every answer, also uvicorn's own: a page loads its own files, nothing inline and nothing of others, and makes
    no markup of a string."""
    reached = " ".join(("'self'", *config.edges))
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; "
        f"connect-src {reached}; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    headers = [
        ("Content-Security-Policy", policy),
        ("X-Content-Type-Options", "nosniff"),
        ("X-Frame-Options", "DENY"),
        ("Referrer-Policy", "no-referrer"),
    ]
    if config.certificate:
        headers.append(("Strict-Transport-Security", f"max-age={HSTS_S}"))
    return headers


def room_for(connections: int) -> int:
    """How many of the wanted connections this process may open, after it has raised its own limit to the highest."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    room = connections if most == resource.RLIM_INFINITY else min(connections, most - SPARE_FILES)
    if room < connections:
        logger.warning("the system lets this process open %d files: at most %d connections", most, room)
    return room


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
        self,
        app: ASGIApp,
        config: EdgeConfig,
        metrics: Metrics,
        drain: Callable[[], Awaitable[None]],
        hurry: Callable[[], None],
    ) -> None:
        tls = tls_of(config)
        super().__init__(
            Served(
                Direct(app),
                Bounds(config.send_timeout, room_for(config.connections), config.of_address),
                metrics,
                tls,
                http=Handshake if tls else EdgeProtocol,
                host=config.host,
                port=config.port,
                loop="uvloop",
                ws="none",
                lifespan="on",
                access_log=False,
                headers=security_headers(config),
                log_config=None,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._drain, self._hurry, self._speaks_tls = drain, hurry, tls is not None

    def _log_started_message(self, listeners: Sequence[socket.SocketType]) -> None:
        scheme = "https" if self._speaks_tls else "http"
        logger.info("serving on %s://%s:%d", scheme, *listeners[0].getsockname()[:2])

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
