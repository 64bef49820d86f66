"""The chat page at `/`: its files, read once at the start, and served as they are to anybody who asks.

The headers that every answer has (`server.py`) let nothing run but these files, and make no markup of a string.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edge.errors import NotFound, shown

FOLDER = Path(__file__).parent / "page"
INDEX = "index.html"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class PageFile:
    body: bytes
    media_type: str
    etag: str


def read_page(folder: Path) -> Mapping[str, PageFile]:
    """The page's files by name."""
    return {
        path.name: PageFile(path.read_bytes(), MEDIA_TYPES[path.suffix], _etag(path.read_bytes()))
        for path in folder.iterdir()
        if path.suffix in MEDIA_TYPES
    }


async def get_page(request: Request) -> Response:
    """The page or a file of it; 304 when the browser has it."""
    name = request.path_params.get("file", INDEX)
    found = _FILES.get(name)
    if found is None:
        raise NotFound(f"no file {shown(name)} of the chat page")
    headers = {"ETag": found.etag, "Cache-Control": "no-cache"}
    if request.headers.get("If-None-Match") == found.etag:
        return Response(status_code=304, headers=headers)
    return Response(found.body, headers=headers, media_type=found.media_type)


def _etag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:24]}"'


_FILES = read_page(FOLDER)
ROUTES = (
    Route("/", get_page, include_in_schema=False),
    Route("/page/{file}", get_page, include_in_schema=False),
)
