"""The API's OpenAPI 3.1 document, put together from the app's routes and the tables that say what they take and answer.

In: routes and an edge's settings. Out: a plain dict. Made once, when the app is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from starlette.routing import Route

from edge import errors, openapi_operations, rates, requests
from edge.access import COOKIE, CSRF_HEADER
from edge.config import EdgeConfig
from edge.errors import ApiError
from edge.openapi_answers import answer_schemas
from edge.openapi_operations import EVERYWHERE, JSON, OPERATIONS, Answer, Operation
from edge.openapi_requests import TEXT, Schema, ranged, ref, request_schemas
from schemas.codec import schemas_by_confluent_id

IMPLIED = "HEAD"  # wherever there is GET
ABOUT = (
    "LLM chat on a durable log: every token of a reply is a numbered event, and any edge goes on after any of them. "
    "A request carries `Authorization: Bearer <key or JWT>`, or a session's cookie. A body is read as JSON, whatever "
    "its Content-Type says, has at most {most} bytes, and a field that is null was not given."
)
MEANINGS = dict(re.findall(r"-- (\w+) +\d{3}  (.+)", errors.__doc__ or ""))
ACCESS: dict[str, Schema] = {
    openapi_operations.BEARER: {"bearer": []},
    openapi_operations.COOKIE: {"session": []},
    openapi_operations.COOKIE_WITH_TOKEN: {"session": [], "csrf": []},
}
SCHEMES: dict[str, Schema] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, or a JWT of the app's own users."},
    "session": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "From `POST /v1/session`."},
    "csrf": {
        "type": "apiKey",
        "in": "header",
        "name": CSRF_HEADER,
        "description": "The session's token, which what changes something by its cookie needs as well.",
    },
}
HEADERS: dict[str, Schema] = {
    "X-Request-Id": {"description": "The reply that the answer is about, else a name of its own.", "schema": TEXT},
    "Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}},
    "WWW-Authenticate": {"schema": TEXT},
    rates.RETRY_AFTER_MS: {"description": "Milliseconds.", "schema": {"type": "integer", "minimum": 1}},
    rates.SHOULD_RETRY: {"description": "Trying again within two minutes will not help.", "schema": {"const": "false"}},
    rates.ASKED_MODEL: {"description": "A quota made another model answer than this one.", "schema": TEXT},
    **{
        name: {"description": "Of the limit that comes next, where there is one.", "schema": TEXT}
        for name in rates.NAMES
    },
    "Set-Cookie": {"description": "HttpOnly, SameSite=Strict.", "schema": TEXT},
}
# Refusals that may say when to come again.
RETRIED = frozenset((409, 429, 500, 503))
LIMITED = (rates.RETRY_AFTER_MS, rates.SHOULD_RETRY, *rates.NAMES)


def document(routes: Iterable[Route], config: EdgeConfig) -> dict[str, Any]:
    """The document of these routes. Raises KeyError for an endpoint that nobody has described."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        for method in sorted((route.methods or set()) - {IMPLIED}):
            paths.setdefault(route.path_format, {})[method.lower()] = _operation(route, OPERATIONS[route.endpoint])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Laneway",
            "version": version("laneway"),
            "description": ABOUT.format(most=config.max_body),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {**request_schemas(config), **answer_schemas(config)},
            "parameters": parameters(config),
            "headers": HEADERS,
            "securitySchemes": SCHEMES,
        },
    }


def parameters(config: EdgeConfig) -> dict[str, Schema]:
    """Those of paths bear the name that the routes give them."""
    digits = {"type": "string", "pattern": r"^[0-9]{1,10}$"}
    any_schema = str(next(iter(schemas_by_confluent_id())))
    seen, of_seen = ranged(requests.EVENT_ID), "The last event that was seen."
    page = {**ranged(requests.PAGE), "default": requests.USUAL_PAGE}
    return {
        "conversation": _in("path", "conversation", _matching(requests.CONVERSATION), example="c1"),
        "reply": _in("path", "reply", {**TEXT, "minLength": 1}),
        "model": _in("path", "model", {"enum": list(config.models)}),
        "id": _in("path", "id", digits, example=any_schema),
        "limit": _in("query", "limit", page),
        "through": _in("query", "through", TEXT, description="A message: show the branch that it is in."),
        "before": _in("query", "before", TEXT, description="`next` of the page before."),
        "last_event_id": _in("header", "Last-Event-ID", seen, description=of_seen),
        "last_event_id_of_query": _in("query", "last_event_id", seen, description=of_seen),
        "idempotency_key": _in(
            "header",
            "Idempotency-Key",
            _matching(requests.CLIENT_KEY),
            description="A repeat under one key meets the first reply.",
        ),
    }


def _in(place: str, name: str, schema: Schema, **more: Any) -> Schema:
    return {"name": name, "in": place, "required": place == "path", "schema": schema, **more}


def _matching(pattern: re.Pattern[str]) -> Schema:
    return {"type": "string", "pattern": f"^{pattern.pattern}$"}


def _operation(route: Route, operation: Operation) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": route.endpoint.__name__,
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": [
            {"$ref": f"#/components/parameters/{name}"} for name in (*route.param_convertors, *operation.parameters)
        ],
        "responses": dict(_responses(operation)),
        "security": [ACCESS[way] for way in operation.access],
    }
    if operation.body:
        examples = {name: {"value": value} for name, value in operation.examples.items()}
        content = {JSON: {"schema": ref(operation.body), "examples": examples}}
        made["requestBody"] = {"required": True, "content": content}
    return made


def _responses(operation: Operation) -> Iterator[tuple[str, Schema]]:
    refusals = {error.status: _refusal(error) for error in (*operation.errors, *EVERYWHERE)}
    for status, answer in sorted({**refusals, **operation.answers}.items(), key=lambda pair: pair[0]):
        yield str(status), _response(answer)


def _refusal(error: type[ApiError]) -> Answer:
    meaning = MEANINGS.get(error.__name__, HTTPStatus(error.status).phrase)
    given = (("Retry-After", RETRIED), ("WWW-Authenticate", {401}), *((name, {429}) for name in LIMITED))
    headers = [name for name, statuses in given if error.status in statuses]
    return Answer(f"`{error.code}` and others: {meaning}.", {JSON: {"schema": ref("Error")}}, tuple(headers))


def _response(answer: Answer) -> Schema:
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in ("X-Request-Id", *answer.headers)}
    made: Schema = {"description": answer.meaning, "headers": headers}
    if answer.content:
        made["content"] = dict(answer.content)
    if answer.links:
        made["links"] = {name: {"operationId": name, "parameters": dict(at)} for name, at in answer.links.items()}
    return made
