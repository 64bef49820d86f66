"""What a request can be refused with; every answer that is no success has OpenAI's error shape.

ApiError
|-- BadRequest    400  the request is wrong; a retry does not help
|-- Unauthorized  401  no API key, or an unknown one
|-- Forbidden     403  a session without its CSRF token; a retry with it helps
|-- NotFound      404  unknown, or somebody else's: the two look alike
|-- TooSlow       408  the request did not arrive in time; a retry may help
|-- Conflict      409  another request stands in the way; a retry helps once that is over, if at all
|-- Gone          410  the reply is older than the log's memory; the conversation has its text
|-- TooLarge      413  the body is over the limit
|-- HeadTooLarge  431  the request's head is over the limit
|-- OverQuota     429  a retry helps after Retry-After
|-- Internal      500  Laneway's own fault; a retry may help
`-- NotNow        503  the log, the store or a stage does not answer; a retry helps, with the same Idempotency-Key
"""

from __future__ import annotations

import math
import uuid
from http import HTTPStatus
from typing import ClassVar

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from edge.extensions import is_gone

SHOWN_CHARACTERS = 60


class ApiError(Exception):
    """A refusal. `param` names the field that is at fault, `retry_after_s` becomes Retry-After."""

    status: ClassVar[int]
    type: ClassVar[str] = "invalid_request_error"
    code: ClassVar[str]

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code_shown = code or self.code
        self.retry_after_s = retry_after_s


class BadRequest(ApiError):
    status, code = 400, "invalid_value"


class Unauthorized(ApiError):
    status, type, code = 401, "authentication_error", "invalid_api_key"


class Forbidden(ApiError):
    status, code = 403, "csrf_token_missing"


class NotFound(ApiError):
    status, code = 404, "not_found"


class TooSlow(ApiError):
    status, code = 408, "request_timeout"


class Conflict(ApiError):
    status, code = 409, "conflict"


class Gone(ApiError):
    status, code = 410, "reply_expired"


class TooLarge(ApiError):
    status, code = 413, "body_too_large"


class HeadTooLarge(ApiError):
    status, code = 431, "head_too_large"


class OverQuota(ApiError):
    status, type, code = 429, "rate_limit_error", "quota"


class Internal(ApiError):
    status, type, code = 500, "server_error", "internal"


class NotNow(ApiError):
    status, type, code = 503, "server_error", "unavailable"


def shown(value: object) -> str:
    """A value as an error message quotes it: shortened, and always printable."""
    text = ascii(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def error_body(message: str, kind: str, code: str, param: str | None = None) -> bytes:
    return orjson.dumps({"error": {"message": message, "type": kind, "code": code, "param": param}})


def error_response(error: ApiError) -> Response:
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    if error.status == Unauthorized.status:
        headers["WWW-Authenticate"] = "Bearer"
    body = error_body(error.message, error.type, error.code_shown, error.param)
    return Response(body, error.status, headers, "application/json")


async def refused(request: Request, error: Exception) -> Response:
    """Starlette's handler for ApiError."""
    assert isinstance(error, ApiError)
    _count(request, error.code_shown)
    return error_response(error)


async def not_routed(request: Request, error: Exception) -> Response:
    """Starlette's handler for what its router refuses: an unknown path or method."""
    assert isinstance(error, HTTPException)
    code = HTTPStatus(error.status_code).name.lower()
    _count(request, code)
    headers = {"Allow": ", ".join(allowed(request))} if error.status_code == 405 else error.headers
    message = f"{request.method} {shown(request.url.path)}: {HTTPStatus(error.status_code).phrase.lower()}"
    body = error_body(message, ApiError.type, code)
    return Response(body, error.status_code, headers, "application/json")


def _count(request: Request, code: str) -> None:
    if not is_gone(request.scope):
        request.app.state.refused(code)


def allowed(request: Request) -> list[str]:
    """The methods of a path, whichever of its routes takes them; Starlette names those of the first alone."""
    routes = (route for route in request.app.routes if isinstance(route, Route))
    fits = (route.methods or set() for route in routes if route.matches(request.scope)[0] is not Match.NONE)
    return sorted(set().union(*fits))


async def crashed(request: Request, _: Exception) -> Response:
    """Starlette's handler for what nobody expected; the server logs the traceback, the client sees none of it."""
    _count(request, Internal.code)
    return error_response(Internal("something went wrong on this server; the error is logged", retry_after_s=1))


def request_id() -> str:
    """A name for an answer that is about no reply."""
    return f"req-{uuid.uuid4().hex}"
