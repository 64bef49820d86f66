"""A connection that is to speak TLS: counted from the moment it comes, and given some time to shake hands.

In: a plain connection. Out: the same as one of HTTP, once both sides have agreed. Left to the event loop nobody would
count handshakes, and each would be waited for a minute.
"""

from __future__ import annotations

import asyncio
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
    """Among uvicorn's connections until it has become one of HTTP. One too many is cut: TLS has no word for it yet."""

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
        self._transport = cast(asyncio.Transport, transport)
        self._transport.pause_reading()  # what comes is the handshake's
        client = get_remote_addr(self._transport)
        self._address = client[0] if client else ""
        self._connections.add(self)
        if self._config.bounds.enter(self._address, len(self._connections)):
            self._task = self._loop.create_task(self._shake_hands())
        else:
            self._leave()
            self._transport.abort()

    def shutdown(self) -> None:
        """uvicorn's word that the server ends."""
        self._transport.abort()

    @property
    def _connections(self) -> set[Any]:
        return cast(set[Any], self._state.connections)

    def _leave(self) -> None:
        self._connections.discard(self)
        self._config.bounds.leave(self._address)

    async def _shake_hands(self) -> None:
        try:
            secured = await self._secured()
        finally:
            self._leave()
        if secured is None or secured.is_closing():
            self._config.metrics.refused(FAILED)
            return
        protocol = EdgeProtocol(self._config, self._state, self._app_state, self._loop)
        secured.set_protocol(protocol)
        protocol.connection_made(secured)  # before the loop gives it what came with the handshake

    async def _secured(self) -> asyncio.Transport | None:
        """None for a client that has gone, speaks no TLS, or says nothing."""
        context = self._config.tls
        if context is None or self._transport.is_closing():
            return None
        try:
            return await self._loop.start_tls(
                self._transport, self, context, server_side=True, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S
            )
        except OSError:
            return None
