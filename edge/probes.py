"""What machines ask an edge, without a key: is it there, is it ready, what does it count, what can it be asked."""

from __future__ import annotations

import orjson
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from edge.edge import edge_of
from edge.errors import NotFound, shown
from edge.responses import json_response
from schemas.codec import schemas_by_confluent_id

SCHEMA_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
_SCHEMAS = schemas_by_confluent_id()


async def health(_: Request) -> Response:
    return json_response({"status": "ok"})


async def ready(request: Request) -> Response:
    """200 when requests should come here; 503 names what is missing."""
    missing = edge_of(request).missing()
    return json_response({"ready": not missing, "missing": missing}, 503 if missing else 200)


async def metrics(request: Request) -> Response:
    return Response(generate_latest(edge_of(request).metrics.registry), media_type=CONTENT_TYPE_LATEST)


async def get_document(request: Request) -> Response:
    """What can be asked of this edge, for tools that make clients, forms and tests of it."""
    return Response(request.app.state.openapi, media_type="application/json")


async def get_schema(request: Request) -> Response:
    """One call of the Confluent schema registry's API, read-only, for tools that read `usage` and `turns`."""
    text = request.path_params["id"]
    schema = _SCHEMAS.get(int(text)) if text.isascii() and text.isdecimal() and len(text) <= 10 else None
    if schema is None:
        raise NotFound(f"no schema {shown(text)}", code="schema_not_found")
    return Response(orjson.dumps({"schema": schema}), media_type=SCHEMA_MEDIA_TYPE)
