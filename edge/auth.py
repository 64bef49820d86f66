"""Who asks: an API key in, a Caller out.

The keys file holds only SHA-256 digests, so looking one up compares hashes and its timing tells nothing about a key.
The file is read again when it changes; a broken one keeps the keys that were.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson

from edge.errors import Unauthorized
from schemas.ids import UserId

logger = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Caller:
    user: UserId
    account: str
    plan: str


class BadKeys(ValueError):
    """The keys file is not `{"keys": [{"sha256", "user", "account", "plan"}]}`. The operator must mend it."""


class Keys:
    """The keys in the file at `path`; `clock` gives seconds that only grow. Raises BadKeys or OSError at the start."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._checked = clock()
        self._mtime_ns = path.stat().st_mtime_ns
        self._callers = read_keys(path.read_bytes())

    def caller(self, authorization: str | None) -> Caller:
        """The holder of the key in an `Authorization` header. Raises Unauthorized."""
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Unauthorized("no API key given: expected the header Authorization: Bearer <key>")
        self._read_again_if_changed()
        found = self._callers.get(hashlib.sha256(key.strip().encode("utf-8", "replace")).hexdigest())
        if found is None:
            raise Unauthorized("this API key is not known")
        return found

    def _read_again_if_changed(self) -> None:
        if self._clock() - self._checked < CHECK_EVERY_S:
            return
        self._checked = self._clock()
        try:
            mtime_ns = self._path.stat().st_mtime_ns
            if mtime_ns == self._mtime_ns:
                return
            self._mtime_ns = mtime_ns
            self._callers = read_keys(self._path.read_bytes())
        except (OSError, BadKeys) as error:
            logger.error("keys file %s cannot be used, the old keys stay: %s", self._path, error)


def read_keys(text: bytes) -> dict[str, Caller]:
    """Callers by the digest of their key. Raises BadKeys."""
    try:
        entries = orjson.loads(text)["keys"]
        found = {entry["sha256"]: Caller(entry["user"], entry["account"], entry["plan"]) for entry in entries}
    except (ValueError, KeyError, TypeError) as error:
        raise BadKeys(f"not a keys file: {error!r}") from error
    words = [word for digest, caller in found.items() for word in (digest, caller.user, caller.account, caller.plan)]
    if not all(isinstance(word, str) and word for word in words):
        raise BadKeys("not a keys file: sha256, user, account and plan are non-empty text")
    return found
