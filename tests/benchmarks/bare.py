"""The least that could be served: Starlette streams that make their own events, on the edge's own server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from edge.config import EdgeConfig
from edge.metrics import Metrics
from edge.server import EdgeServer


def serve(port: int) -> None:
    server(port).run()


def server(port: int) -> EdgeServer:
    """`GET /{tokens}`: so many events, one after the other, as fast as the client takes them."""

    async def events(request: Request) -> StreamingResponse:
        async def made() -> AsyncIterator[bytes]:
            for n in range(1, int(request.path_params["tokens"]) + 1):
                yield b'event: token\nid: %d\ndata: {"text":%b}\n\n' % (n, orjson.dumps(str(time.monotonic_ns())))

        return StreamingResponse(made(), media_type="text/event-stream")

    async def nothing() -> None: ...

    app = Starlette(routes=[Route("/{tokens:int}", events)])
    return EdgeServer(app, EdgeConfig(host="127.0.0.1", port=port), Metrics(), nothing, lambda: None)
