"""A connection that is to speak TLS: counted from the moment it comes, and given some time to shake hands.

In: a plain connection. Out: the same as one of HTTP, once both sides have agreed. Left to the event loop nobody would
count handshakes, and each would be waited for a minute.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from typing import Any, cast

from uvicorn.protocols.utils import get_remote_addr
from uvicorn.server import ServerState

from edge.config import EdgeConfig
from edge.protocol import EdgeProtocol, Served

HANDSHAKE_TIMEOUT_S = 10.0
FAILED = "tls_handshake"


def tls_of(config: EdgeConfig) -> ssl.SSLContext | None:
    """None without a certificate. Raises OSError for files that are no certificate and key."""
    if not config.certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(config.certificate, config.certificate_key or None)
    return context


class Handshake(asyncio.Protocol):
    """Among uvicorn's connections until it has become one of HTTP. One too many is cut: TLS has no word for it yet.

    A connection that was accepted is read from at once, and what came before TLS took over would be lost. So its socket
    is taken from it before that, and given to a connection that speaks TLS from its first byte.
    """

    def __init__(
        self,
        config: Served,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._config, self._state, self._app_state = config, server_state, app_state
        self._loop = _loop or asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = cast(asyncio.Transport, transport)
        client = get_remote_addr(plain)
        self._address = client[0] if client else ""
        self._connections.add(self)
        taken = _taken(plain) if self._config.bounds.enter(self._address, len(self._connections)) else None
        if taken is None:
            self._leave()
        else:
            self._task = self._loop.create_task(self._shake_hands(taken))
            self._task.add_done_callback(lambda _: self._over(taken))
        plain.abort()

    def shutdown(self) -> None:
        """uvicorn's word that the server ends."""
        self._task.cancel()

    def secured(self, transport: asyncio.BaseTransport) -> None:
        """Both sides have agreed."""
        self._leave()
        protocol = EdgeProtocol(self._config, self._state, self._app_state, self._loop)
        cast(asyncio.Transport, transport).set_protocol(protocol)
        protocol.connection_made(cast(asyncio.Transport, transport))  # before the loop gives it what came meanwhile

    @property
    def _connections(self) -> set[Any]:
        return cast(set[Any], self._state.connections)

    def _leave(self) -> None:
        self._connections.discard(self)
        self._config.bounds.leave(self._address)

    async def _shake_hands(self, taken: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: _Agreed(self), taken, ssl=self._config.tls, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S
            )
        except OSError:  # it has gone, speaks no TLS, or says nothing
            self._config.metrics.refused(FAILED)

    def _over(self, taken: socket.socket) -> None:
        """Also of a handshake that was cancelled before it began."""
        if self._task.cancelled():
            taken.close()
        if self in self._connections:
            self._leave()


def _taken(plain: asyncio.Transport) -> socket.socket | None:
    """The connection's socket, to outlive it; None when this process has no file left for it."""
    try:
        taken = socket.socket(fileno=os.dup(plain.get_extra_info("socket").fileno()))
    except OSError:
        return None
    taken.setblocking(False)
    return taken


class _Agreed(asyncio.Protocol):
    """Hears first of a connection that speaks TLS."""

    def __init__(self, handshake: Handshake) -> None:
        self._handshake = handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._handshake.secured(transport)
