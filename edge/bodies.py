"""A request's body: bounded for each, and for all that are being read and decided together."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request

from edge.edge import edge_of
from edge.errors import BadRequest, NotNow, TooLarge


@contextlib.asynccontextmanager
async def body_of(request: Request) -> AsyncIterator[bytes]:
    """The body, which counts as held until the block ends. Raises TooLarge before more than LANEWAY_MAX_BODY bytes are
    held, NotNow where there is no room for it, BadRequest when it breaks off.
    """
    edge = edge_of(request)
    most, declared = edge.config.max_body, request.headers.get("Content-Length", "")
    if declared.isdecimal() and int(declared) > most:
        raise TooLarge(f"Content-Length={declared}: expected at most {most} bytes")
    body = bytearray()
    with edge.bodies.share() as share:
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise TooLarge(f"the body is over {most} bytes")
                if not share.fits(len(body)):
                    raise NotNow("this edge holds as many long bodies as it may; send it again", retry_after_s=1)
        except ClientDisconnect:
            raise BadRequest(f"the body broke off after {len(body)} bytes", code="incomplete_body") from None
        yield bytes(body)
