"""A client's bytes to events, by the rules of server-sent events; what came after the last blank line is no event."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    id: int | None
    data: Any


def parse(body: bytes) -> list[Event]:
    """Raises ValueError for an id or data that nobody could read."""
    found: list[Event] = []
    fields: dict[str, str] = {}
    for line in body.decode("utf-8", "replace").split("\n")[:-1]:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        else:
            if "data" in fields:
                event_id = int(fields["id"]) if "id" in fields else None
                found.append(Event(fields.get("event", "message"), event_id, json.loads(fields["data"])))
            fields = {}
    return found


def asks_to_retry(body: bytes) -> bool:
    """The last line tells the client when to come back: the edge is about to leave."""
    return body.rstrip(b"\n").rpartition(b"\n")[2].startswith(b"retry:")
