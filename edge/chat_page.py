"""The chat page at `/`: its files, read once at the start, and the headers that let nothing but them run.

No script or style comes from elsewhere or from text, no markup is made of strings (`require-trusted-types-for`), and
the page may speak to this edge and to the cell's others only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edge.edge import edge_of
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


def security_headers(edges: tuple[str, ...]) -> Mapping[str, str]:
    """What a browser must know of the page; `edges` are the origins that it may call beside its own."""
    policy = {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": " ".join(("'self'", *edges)),
        "img-src": "'self' data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
    }


async def get_page(request: Request) -> Response:
    """The page or a file of it; 304 when the browser has it."""
    name = request.path_params.get("file", INDEX)
    found = _FILES.get(name)
    if found is None:
        raise NotFound(f"no file {shown(name)} of the chat page")
    headers = {"ETag": found.etag, "Cache-Control": "no-cache", **security_headers(edge_of(request).config.edges)}
    if request.headers.get("If-None-Match") == found.etag:
        return Response(status_code=304, headers=headers)
    return Response(found.body, headers=headers, media_type=found.media_type)


def _etag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:24]}"'


_FILES = read_page(FOLDER)
ROUTES = (Route("/", get_page), Route("/page/{file}", get_page))
