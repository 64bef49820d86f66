"""Secrets of a local stack: API keys and the cell's key for reply ids.

In: a file. Out: `keys.json`, which holds only the SHA-256 of each API key with its user, account
and plan, and files with mode 0600 for the texts. What exists is kept.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from pathlib import Path

from infra.local.state import write_private


def new_key() -> str:
    return f"lw-{secrets.token_hex(16)}"


def grant(keys: Path, key: str, user: str, plan: str = "free") -> None:
    """Adds the API key to the file `keys` for the user, whose account bears the same name."""
    entries = json.loads(keys.read_text())["keys"] if keys.exists() else []
    digest = hashlib.sha256(key.encode()).hexdigest()
    if any(entry["sha256"] == digest for entry in entries):
        return
    entries.append({"sha256": digest, "user": user, "account": user, "plan": plan})
    write_private(keys, json.dumps({"keys": entries}, indent=2) + "\n")


def keep(path: Path, fresh: str) -> str:
    """The secret kept at `path`; `fresh` becomes it the first time."""
    if not path.exists():
        write_private(path, fresh + "\n")
    return path.read_text().strip()
