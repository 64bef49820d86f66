"""`/v1/models`: what is served here, in OpenAI's shape."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from edge.edge import caller_of, edge_of
from edge.errors import NotFound, shown


async def list_models(request: Request) -> Response:
    caller_of(request)
    return _json({"object": "list", "data": [_model(name) for name in edge_of(request).config.models]})


async def get_model(request: Request) -> Response:
    caller_of(request)
    name, served = request.path_params["model"], edge_of(request).config.models
    if name not in served:
        raise NotFound(f"model {shown(name)} is not served here: {', '.join(served)}", code="model_not_found")
    return _json(_model(name))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "laneway"}


def _json(body: dict[str, Any]) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")
