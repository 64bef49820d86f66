"""Who asks: an API key in, a Caller and what lets it in out.

The keys file holds only SHA-256 digests, so looking one up compares hashes and its timing tells nothing about a key.
The file is read again when it changes; a broken one keeps the keys that were.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson

from edge.errors import Unauthorized
from edge.watched import WatchedFile
from schemas.ids import UserId

KEY = "key:"


@dataclass(frozen=True, slots=True)
class Caller:
    user: UserId
    account: str
    plan: str


@dataclass(frozen=True, slots=True)
class Pass:
    """A caller who was let in. `credential` names what for, and may be taken back; `expires` in seconds since 1970."""

    caller: Caller
    credential: str
    expires: float | None = None


class BadKeys(ValueError):
    """The file is not `{"keys": [{"sha256", "user", "account", "plan", "expires"}]}`. The operator must mend it."""


class Keys:
    """The keys in the file at `path`; `now` gives seconds since 1970. Raises BadKeys or OSError at the start."""

    def __init__(
        self, path: Path, clock: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time
    ) -> None:
        self._file = WatchedFile(path, read_keys, clock)
        self._now = now

    @property
    def version(self) -> int:
        return self._file.version

    def admit(self, key: str) -> Pass:
        """The holder of an API key. Raises Unauthorized."""
        found = self.holder(KEY + hashlib.sha256(key.encode("utf-8", "replace")).hexdigest())
        if found is None:
            raise Unauthorized("this API key is not known, or is revoked or expired")
        return found

    def holder(self, credential: str) -> Pass | None:
        """Whom a credential of a key lets in now; None once the key is revoked or expired."""
        found = self._file.value.get(credential)
        return found if found and (found.expires is None or self._now() < found.expires) else None


def read_keys(text: bytes) -> dict[str, Pass]:
    """Whom each credential lets in. Raises BadKeys."""
    try:
        found = [_pass(entry) for entry in orjson.loads(text)["keys"]]
    except (ValueError, KeyError, TypeError) as error:
        raise BadKeys(f"not a keys file: {error!r}") from error
    return {let_in.credential: let_in for let_in in found}


def _pass(entry: dict[str, object]) -> Pass:
    words = [entry[name] for name in ("sha256", "user", "account", "plan")]
    digest, user, account, plan = (word for word in words if isinstance(word, str) and word)
    expires = entry.get("expires")
    if not (expires is None or isinstance(expires, int | float)):
        raise ValueError(f"expires={expires!r}: expected seconds since 1970")
    return Pass(Caller(UserId(user), account, plan), KEY + digest, expires)
