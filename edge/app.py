"""The edge as an ASGI application: its routes, and an answer in one shape for whatever goes wrong."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edge import (
    chat_completions,
    chat_page,
    conversations,
    errors,
    messages,
    models,
    probes,
    rates,
    replies,
    session,
    usage,
)
from edge.access import CSRF_HEADER
from edge.config import EdgeConfig
from edge.edge import Edge
from edge.extensions import is_gone
from edge.metrics import Metrics
from edge.openapi import document
from edge.traced import Traced

Opened = Callable[[Metrics], contextlib.AbstractAsyncContextManager[Edge]]

ROUTES = (
    Route("/v1/conversations/{conversation}/messages", messages.post_message, methods=["POST"]),
    Route("/v1/conversations/{conversation}/export", conversations.export_conversation),
    Route("/v1/export", conversations.export_all),
    Route("/v1/conversations/{conversation}", conversations.rename_conversation, methods=["PATCH"]),
    Route("/v1/conversations/{conversation}", conversations.delete_conversation, methods=["DELETE"]),
    Route("/v1/conversations/{conversation}", conversations.get_conversation),
    Route("/v1/conversations", conversations.list_conversations),
    Route("/v1/replies/{reply}/events", replies.get_events),
    Route("/v1/replies/{reply}/stop", replies.stop_reply, methods=["POST"]),
    Route("/v1/replies/{reply}", replies.get_reply),
    Route("/v1/usage", usage.get_usage),
    Route("/v1/session", session.get_session),
    Route("/v1/session", session.post_session, methods=["POST"]),
    Route("/v1/session", session.delete_session, methods=["DELETE"]),
    Route("/v1/chat/completions", chat_completions.create_completion, methods=["POST"]),
    Route("/v1/models", models.list_models),
    Route("/v1/models/{model:path}", models.get_model),
    Route("/schemas/ids/{id}", probes.get_schema),
    Route("/health", probes.health),
    Route("/ready", probes.ready),
    Route("/metrics", probes.metrics),
    Route("/openapi.json", probes.get_document),
    *chat_page.ROUTES,
)
METHODS = ("GET", "POST", "PATCH", "DELETE")
HEADERS = ("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", CSRF_HEADER)
EXPOSED = (
    *("Retry-After", "WWW-Authenticate", "X-Request-ID"),
    *(rates.RETRY_AFTER_MS, rates.SHOULD_RETRY, rates.ASKED_MODEL, *rates.NAMES),
)


def build(config: EdgeConfig, opened: Opened, metrics: Metrics) -> ASGIApp:
    """The application; `opened` opens the edge on the loop when the server starts, and closes it at the end.

    What every answer gets lies around all of it, so that the answer to a crash, which Starlette gives outside of an
    app's own middleware, gets it as well.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with opened(metrics) as edge:
            app.state.edge = edge
            yield

    app = Starlette(
        routes=ROUTES,
        lifespan=lifespan,
        exception_handlers={
            errors.ApiError: errors.refused,
            HTTPException: errors.not_routed,
            Exception: errors.crashed,
        },
    )
    app.router.redirect_slashes = False
    app.state.refused = metrics.refused
    app.state.openapi = orjson.dumps(document((route for route in ROUTES if route.include_in_schema), config))
    shared = CORSMiddleware(
        app,
        allow_origins=config.origins,
        allow_methods=METHODS,
        allow_headers=HEADERS,
        allow_credentials=True,
        expose_headers=EXPOSED,
    )
    return Counted(Named(Traced(shared)), metrics)


class Named:
    """Gives every answer an `X-Request-Id`: that of the reply it is about, which a route puts into the request's state,
    else one of its own; and what the route has put there of its user's quota.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def naming(message: Message) -> None:
            if message["type"] == "http.response.start":
                state = scope.get("state", {})
                own = {"x-request-id": state.get("request_id") or errors.request_id(), **state.get("rates", {})}
                added = ((name.encode(), value.encode()) for name, value in own.items())
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        await self._app(scope, receive, naming if scope["type"] == "http" else send)


class Counted:
    """Counts requests by method and status, as they are answered; what nobody is left to hear is no answer."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._answered = app, metrics.answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start" and not is_gone(scope):
                self._answered(scope["method"], message["status"])
            await send(message)

        await self._app(scope, receive, counting if scope["type"] == "http" else send)
