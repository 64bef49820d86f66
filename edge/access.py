"""Who may do what: a request in, a Pass out. A Bearer header counts before the session's cookie.

A browser sends the cookie by itself, also for a page of somebody else's; so what changes something needs the session's
CSRF token as well, which only a page that was given it can send. Nobody sends a Bearer header by accident.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from starlette.requests import Request
from starlette.types import Scope

from edge.auth import KEY, Keys, Pass
from edge.errors import Forbidden, Unauthorized
from edge.seal import Sealer
from edge.tokens import Tokens

COOKIE = "laneway"
CSRF_HEADER = "X-CSRF-Token"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
PASS = "laneway.pass"


class Access:
    """`now` gives seconds since 1970."""

    def __init__(self, keys: Keys, tokens: Tokens | None, sealer: Sealer, now: Callable[[], float] = time.time) -> None:
        self.sealer, self.now = sealer, now
        self._keys, self._tokens = keys, tokens

    def admit(self, request: Request) -> Pass:
        """Lets a request in, and notes in its scope by what. Raises Unauthorized or Forbidden."""
        if "Authorization" in request.headers or COOKIE not in request.cookies:
            let_in = self.bearer(request.headers.get("Authorization"))
        else:
            let_in = self.session(request.cookies[COOKIE])
            if request.method not in SAFE:
                self.check_csrf(request)
        request.scope[PASS] = let_in
        return let_in

    def bearer(self, authorization: str | None) -> Pass:
        """Raises Unauthorized."""
        scheme, _, secret = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise Unauthorized("no API key given: expected the header Authorization: Bearer <key>, or a session")
        secret = secret.strip()
        if self._tokens is not None and secret.count(".") == 2:
            return self._tokens.admit(secret)
        return self._keys.admit(secret)

    def session(self, sealed: str) -> Pass:
        """Whom a session's cookie lets in, as long as what it was made for still would. Raises Unauthorized."""
        let_in = self.sealer.open(sealed)
        if let_in is None or let_in.expires is None or let_in.expires <= self.now() or not self.holds(let_in):
            raise Unauthorized("no open session: expected a new one from POST /v1/session", code="no_session")
        return let_in

    def is_open(self, request: Request) -> bool:
        """Whether the request's cookie still lets somebody in."""
        try:
            self.session(request.cookies.get(COOKIE, ""))
        except Unauthorized:
            return False
        return True

    def check_csrf(self, request: Request) -> None:
        """Raises Forbidden."""
        if not self.sealer.is_csrf(request.headers.get(CSRF_HEADER, ""), request.cookies[COOKIE]):
            raise Forbidden(
                f"{request.method} by a session: expected the header {CSRF_HEADER} with the token that GET "
                "/v1/session gives"
            )

    @property
    def version(self) -> int:
        """Grows when somebody may have been let in or out."""
        return self._keys.version + (self._tokens.version if self._tokens else 0)

    def holds(self, let_in: Pass) -> bool:
        """Whether what let somebody in would do so again."""
        if let_in.credential.startswith(KEY):
            return self._keys.holder(let_in.credential) is not None
        return self._tokens is not None and self._tokens.trusts(let_in.credential)


def pass_of(scope: Scope | Mapping[str, object]) -> Pass | None:
    """By what the request was let in; None when it needs nothing."""
    found = scope.get(PASS)
    assert found is None or isinstance(found, Pass)
    return found
