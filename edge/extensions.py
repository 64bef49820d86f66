"""What the server adds to a request's scope: the end of its connection, its way past the middleware, and whether its
client has gone, whom no answer reaches any more.
"""

from __future__ import annotations

from starlette.types import Scope

ABORT, BODY, GONE = "laneway.abort", "laneway.body", "laneway.gone"


def is_gone(scope: Scope) -> bool:
    return bool(scope["extensions"][GONE]["call"]())
