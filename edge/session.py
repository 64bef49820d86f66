"""`/v1/session`: an API key for a cookie, so that a page keeps no key, and EventSource, which sends no header, gets in.

The cookie is sealed under the cell's key and valid at every edge of the cell; no edge remembers it.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import orjson
from starlette.requests import Request
from starlette.responses import Response

from edge.access import COOKIE
from edge.auth import Pass
from edge.edge import Edge, edge_of


async def post_session(request: Request) -> Response:
    edge = edge_of(request)
    let_in = edge.access.bearer(request.headers.get("Authorization"))
    over = edge.access.now() + edge.config.session
    session = Pass(let_in.caller, let_in.credential, min(over, let_in.expires or over))
    sealed = edge.access.sealer.seal(session)
    answer = _described(edge, request, session, sealed)
    _set_cookie(answer, edge, request, sealed, _left_s(edge, session))
    return answer


async def get_session(request: Request) -> Response:
    edge, sealed = edge_of(request), request.cookies.get(COOKIE, "")
    return _described(edge, request, edge.access.session(sealed), sealed)


async def delete_session(request: Request) -> Response:
    """A session that is over already is cleared without a token: nothing depends on it."""
    edge = edge_of(request)
    answer = Response(status_code=204)
    if edge.access.is_open(request):
        edge.access.check_csrf(request)
    _set_cookie(answer, edge, request, "", 0)
    return answer


def reachable(edges: tuple[str, ...], host: str | None) -> tuple[str, ...]:
    """The edges that a page on `host` can go on at: those of the same name, whom its cookie reaches; else all."""
    return tuple(edge for edge in edges if urlsplit(edge).hostname == host) or edges


def _described(edge: Edge, request: Request, session: Pass, sealed: str) -> Response:
    body = {
        "user": session.caller.user,
        "csrf": edge.access.sealer.csrf(sealed),
        "edges": reachable(edge.config.edges, request.url.hostname),
        "expires_in": _left_s(edge, session),
    }
    return Response(orjson.dumps(body), headers={"Cache-Control": "no-store"}, media_type="application/json")


def _left_s(edge: Edge, session: Pass) -> int:
    assert session.expires is not None
    return max(0, int(session.expires - edge.access.now()))


def _set_cookie(answer: Response, edge: Edge, request: Request, sealed: str, age_s: int) -> None:
    answer.set_cookie(
        COOKIE,
        sealed,
        max_age=age_s,
        domain=edge.config.cookie_domain or None,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
