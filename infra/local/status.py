"""Is the local stack ready? Asked of the edges and the kernel, not of the state file alone."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

from infra.local.processes import is_alive
from infra.local.restarts import State
from infra.local.stack import get_status
from infra.local.state import Up
from infra.local.supervisor import Row


@dataclass(frozen=True)
class Status:
    ready: bool
    edges: tuple[str, ...]
    api_key: str
    kafka: str
    processes: tuple[Row, ...]

    def as_json(self) -> str:
        shown = asdict(self)
        for row in shown["processes"]:
            del row["created"]
        return json.dumps(shown, indent=2)


def look(up: Up) -> Status:
    """The stack as it is now: each process alive, each edge's `/ready` answering 200."""
    alive = all(row.state == State.READY and is_alive(row.pid, row.created) for row in up.processes)
    answering = all(get_status(urlsplit(url).port or 80, "/ready") == 200 for url in up.edges)
    return Status(up.ready and alive and answering, up.edges, up.api_key, up.kafka, up.processes)


def as_text(status: Status) -> str:
    width = max((len(row.name) for row in status.processes), default=0)
    head = [
        "ready" if status.ready else "not ready",
        f"edges    {'  '.join(status.edges)}",
        f"API key  {status.api_key}",
        f"Kafka    {status.kafka}",
    ]
    rows = [
        f"{row.name:<{width}}  pid {row.pid:<7}  {row.state:<8}  restarts {row.restarts}  {row.log}"
        for row in status.processes
    ]
    return "\n".join(head + rows)
