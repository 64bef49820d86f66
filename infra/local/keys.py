"""API keys and other secrets: `keys.json`, which holds only the SHA-256 of each key, and files for the texts.

A key's id is the beginning of its digest. The file is replaced whole under a lock, with mode 0600, so edges and other
commands see all of a change or nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from infra.local.errors import KeysError
from infra.local.private_file import write_private

ID_DIGITS = 10


@dataclass(frozen=True)
class KeyEntry:
    """One key, as the file has it. `created` and `expires` are seconds since 1970; None: unknown, never."""

    sha256: str
    user: str
    account: str
    plan: str
    created: int | None = None
    expires: int | None = None
    note: str = ""

    @property
    def id(self) -> str:
        return self.sha256[:ID_DIGITS]


def new_key() -> str:
    return f"lw-{secrets.token_hex(16)}"


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def entries(path: Path) -> list[KeyEntry]:
    """All keys, oldest first; none without a file. Raises KeysError."""
    if not path.exists():
        return []
    known = {field.name for field in fields(KeyEntry)}
    try:
        found = json.loads(path.read_text())["keys"]
        return [KeyEntry(**{name: value for name, value in entry.items() if name in known}) for entry in found]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KeysError(f"{path} is no keys file: {error!r}") from error


def add(path: Path, entry: KeyEntry) -> None:
    """Raises KeysError when the file is none."""
    with _editing(path) as found:
        found.append(entry)


def revoke(path: Path, key_id: str) -> KeyEntry:
    """Removes the key with that id, or with the only id that begins so. Raises KeysError."""
    with _editing(path) as found:
        matching = [entry for entry in found if entry.sha256.startswith(key_id.lower()) and key_id]
        if len(matching) != 1:
            what = "no key" if not matching else f"{len(matching)} keys"
            raise KeysError(f"{what} with id {key_id!r} in {path}; `laneway keys list` shows them")
        found.remove(matching[0])
    return matching[0]


def keep_key(path: Path, text_file: Path, user: str) -> str:
    """The user's key kept in `text_file`; a new one the first time, and after the old one was revoked."""
    known = {entry.sha256 for entry in entries(path)}
    if text_file.exists() and digest(key := text_file.read_text().strip()) in known:
        return key
    key = new_key()
    add(path, KeyEntry(digest(key), user, account=user, plan="free", created=int(time.time()), note=text_file.name))
    write_private(text_file, key + "\n")
    return key


def keep(path: Path, fresh: str) -> str:
    """The secret kept at `path`; `fresh` becomes it the first time."""
    if not path.exists():
        write_private(path, fresh + "\n")
    return path.read_text().strip()


@contextlib.contextmanager
def _editing(path: Path) -> Iterator[list[KeyEntry]]:
    """The entries to change; they are written at the end, unless it raises."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = entries(path)
        yield found
        write_private(path, json.dumps({"keys": [_written(entry) for entry in found]}, indent=2) + "\n")


def _written(entry: KeyEntry) -> dict[str, object]:
    return {name: value for name, value in asdict(entry).items() if value not in (None, "")}
