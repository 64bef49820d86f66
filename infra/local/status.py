"""Is the local stack ready? Asked of its processes and the kernel, not of the state file alone."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

from infra.local.processes import is_alive
from infra.local.restarts import State
from infra.local.state import Up
from infra.local.supervisor import Row

ANSWER_S = 2.0


@dataclass(frozen=True)
class Status:
    """`missing` says for each process that is not ready why; `metrics` where each can be asked."""

    ready: bool
    edges: tuple[str, ...]
    api_key: str
    kafka: str
    processes: tuple[Row, ...]
    metrics: Mapping[str, str]
    missing: Mapping[str, tuple[str, ...]]

    def as_json(self) -> str:
        shown = asdict(self)
        for row in shown["processes"]:
            del row["created"]
        return json.dumps(shown, indent=2)


def look(up: Up) -> Status:
    """The stack as it is now: each process alive and ready by its own word."""
    missing = {row.name: lacking for row in up.processes if (lacking := lacks(row, up.metrics.get(row.name)))}
    ready = up.ready and bool(up.processes) and not missing
    return Status(ready, up.edges, up.api_key, up.kafka, up.processes, up.metrics, missing)


def lacks(row: Row, url: str | None) -> tuple[str, ...]:
    """What keeps a process from being ready."""
    if not is_alive(row.pid, row.created):
        return ("it has ended",)
    if row.state != State.READY:
        return (f"it is {row.state}",)
    return ask_ready(url) if url else ()


def ask_ready(url: str) -> tuple[str, ...]:
    """What a process says that it lacks."""
    body = get(url, "/ready")
    if body is None:
        return (f"{url}/ready does not answer",)
    return tuple(json.loads(body).get("missing", ()))


def get(url: str, path: str) -> bytes | None:
    """The body of a GET on this machine, whatever its status; None when nobody answers."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=ANSWER_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def as_text(status: Status) -> str:
    width = max((len(row.name) for row in status.processes), default=0)
    head = [
        "ready" if status.ready else "not ready",
        f"edges    {'  '.join(status.edges)}",
        f"API key  {status.api_key}",
        f"Kafka    {status.kafka}",
    ]
    return "\n".join([*head, *(line for row in status.processes for line in _lines(row, status, width))])


def _lines(row: Row, status: Status, width: int) -> list[str]:
    url = status.metrics.get(row.name)
    where = f"  {url}/metrics" if url else ""
    first = f"{row.name:<{width}}  pid {row.pid:<7}  {row.state:<8}  restarts {row.restarts}  {row.log}{where}"
    return [first, *(f"{'':<{width}}  missing: {reason}" for reason in status.missing.get(row.name, ()))]
