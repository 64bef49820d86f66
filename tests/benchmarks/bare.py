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
from edge.server import EdgeServer


def serve(port: int) -> None:
    """`GET /{tokens}`: so many events, one after the other, as fast as the client takes them."""

    async def events(request: Request) -> StreamingResponse:
        async def made() -> AsyncIterator[bytes]:
            for n in range(1, int(request.path_params["tokens"]) + 1):
                yield b'event: token\nid: %d\ndata: {"text":%b}\n\n' % (n, orjson.dumps(str(time.monotonic_ns())))

        return StreamingResponse(made(), media_type="text/event-stream")

    async def nothing() -> None: ...

    app = Starlette(routes=[Route("/{tokens:int}", events)])
    EdgeServer(app, EdgeConfig(host="127.0.0.1", port=port), nothing, lambda: None).run()
