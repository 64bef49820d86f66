"""A request as the root of a trace: its span begins when it comes, and ends when its answer begins.

Only a request that posts a message has one. It belongs to the client's own trace if the client sent a `traceparent`.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.datastructures import Headers as HttpHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemas.events import MessagePosted
from topics.log import Headers
from topics.outputs import Output
from topics.telemetry.trace import Spans

if TYPE_CHECKING:
    from opentelemetry.trace import Span


@dataclass
class Asked:
    """One request; `span` once it has posted a message."""

    headers: HttpHeaders
    since_ns: int
    span: Span | None = None

    def end(self, status: int) -> None:
        if self.span is not None and self.span.is_recording():
            self.span.set_attribute("http.response.status_code", status)
            self.span.end()


ASKED: ContextVar[Asked | None] = ContextVar("asked", default=None)


class RequestSpans(Spans):
    """The spans of an edge: a message that is posted begins one."""

    def headers(self, output: Output) -> Headers:
        asked = ASKED.get()
        if asked is not None and isinstance(output.event, MessagePosted):
            asked.span = self.root(output.event.reply, asked.headers, asked.since_ns)
        return super().headers(output)


class Traced:
    """Remembers the request while it is answered, for the spans to find."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        asked = Asked(HttpHeaders(scope=scope), time.time_ns())

        async def ending(message: Message) -> None:
            if message["type"] == "http.response.start":
                asked.end(message["status"])
            await send(message)

        token = ASKED.set(asked)
        try:
            await self._app(scope, receive, ending)
        finally:
            ASKED.reset(token)
            asked.end(500)
