"""The data folder of a local stack: its lock, and `up.json`, which says what runs on it.

In: a folder. Out: at most one holder of the lock; a state file that readers see whole or not at
all. A pid is always kept with its process's creation time, so a stale file never points at a
stranger's process.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil

from infra.local.errors import AlreadyRunning, NothingRuns
from infra.local.private_file import write_private
from infra.local.processes import create_time, is_alive
from infra.local.supervisor import Row


@dataclass(frozen=True)
class Up:
    """What `laneway up` runs, and where it is reached."""

    pid: int
    created: float | None
    ready: bool
    edges: tuple[str, ...]
    api_key: str
    kafka: str
    processes: tuple[Row, ...]
    metrics: Mapping[str, str] = field(default_factory=dict)
    store: str = ""

    @classmethod
    def of_this_process(cls, edges: tuple[str, ...], api_key: str, kafka: str) -> Up:
        return cls(os.getpid(), create_time(os.getpid()), False, edges, api_key, kafka, ())

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Up:
        processes = tuple(Row(**row) for row in found["processes"])
        return cls(**{**found, "edges": tuple(found["edges"]), "processes": processes})

    def alive(self) -> bool:
        return is_alive(self.pid, self.created)


class DataFolder:
    """Paths in a data folder, and its state file."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.state_file = self.path / "up.json"
        self.logs = self.path / "logs"
        self.models = self.path / "models"
        self.kafka = self.path / "kafka"
        self.jars = self.kafka / "jars"
        self.ready = self.path / "ready"
        self.keys = self.path / "keys.json"
        self.store = self.path / "store.sqlite"
        self.cassandra = self.path / "cassandra"
        self.cell_key = self.path / "cell.key"

    def lock(self) -> IO[str]:
        """Held until the returned file is closed, or this process ends. Raises AlreadyRunning."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (self.path / "up.lock").open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise AlreadyRunning(self._who()) from None
        return file

    def write(self, up: Up) -> None:
        write_private(self.state_file, json.dumps(asdict(up), indent=2) + "\n")

    def read(self) -> Up | None:
        """The last state written, also of a stack that has died since."""
        try:
            return Up.from_json(json.loads(self.state_file.read_text()))
        except FileNotFoundError:
            return None

    def running(self) -> Up:
        """The stack that runs here. Raises NothingRuns."""
        up = self.read()
        if up is None or not up.alive():
            raise NothingRuns(f"nothing runs on {self.path}: start it with `laneway up`")
        return up

    def disposable(self, everything: bool) -> list[Path]:
        """What a reset deletes: not the lock, nor what was downloaded unless `everything` goes."""
        kept = {self.path / "up.lock"} if everything else {self.path / "up.lock", self.models, self.kafka}
        paths = [path for path in self.path.iterdir() if path not in kept]
        if not everything and self.kafka.exists():
            paths += [path for path in self.kafka.iterdir() if path != self.jars]
        return paths

    def _who(self) -> str:
        up = self.read()
        if up is None or not up.alive():
            return f"another `laneway up` is starting on {self.path}"
        urls = ", ".join(up.edges)
        return f"laneway already runs on {self.path} (pid {up.pid}): {urls}. Stop it with `laneway down`."


def end_leftovers(up: Up, grace: float) -> int:
    """Ends what a stack that was killed left running; how many that were."""
    left = [psutil.Process(row.pid) for row in up.processes if is_alive(row.pid, row.created)]
    for process in left:
        process.terminate()
    _, stubborn = psutil.wait_procs(left, grace)
    for process in stubborn:
        process.kill()
    psutil.wait_procs(stubborn, grace)
    return len(left)


def end(up: Up, timeout: float) -> bool:
    """Asks the stack to drain; whether it has ended within `timeout` seconds."""
    if not up.alive():
        return True
    os.kill(up.pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while up.alive():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
