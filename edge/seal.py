"""A session as text: a Pass in, a sealed cookie out, and back at any edge of the cell. No state, no clock.

The text is signed, not secret: whoever holds the cookie may read their own user in it, and can change nothing.
The CSRF token is derived from the text under a key of its own, so it needs no place to be kept either.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

import orjson

from edge.auth import Caller, Pass


class Sealer:
    def __init__(self, cell_key: bytes) -> None:
        self._seal_key, self._csrf_key = (
            hmac.digest(cell_key, purpose, hashlib.sha256) for purpose in (b"laneway session", b"laneway csrf")
        )

    def seal(self, let_in: Pass) -> str:
        caller = let_in.caller
        fields = [caller.user, caller.account, caller.plan, let_in.credential, let_in.expires]
        body = _text(orjson.dumps(fields))
        return f"{body}.{_mac(self._seal_key, body)}"

    def open(self, sealed: str) -> Pass | None:
        """What was sealed, which may have expired; None for a text that no edge of this cell has sealed."""
        body, _, mac = sealed.rpartition(".")
        if not hmac.compare_digest(mac.encode(), _mac(self._seal_key, body).encode()):
            return None
        user, account, plan, credential, expires = orjson.loads(_bytes(body))
        return Pass(Caller(user, account, plan), credential, expires)

    def csrf(self, sealed: str) -> str:
        """The token that goes with a sealed session."""
        return _mac(self._csrf_key, sealed)

    def is_csrf(self, token: str, sealed: str) -> bool:
        return hmac.compare_digest(token.encode(), self.csrf(sealed).encode())


def _mac(key: bytes, text: str) -> str:
    return _text(hmac.digest(key, text.encode(), hashlib.sha256))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
