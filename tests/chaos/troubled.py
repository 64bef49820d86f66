"""A whole stack that is to be broken: two replicas, each stage a process of its own, and every way to hurt one.

Nothing here waits for a process to come back; whoever drives the run calls `mend` again and again, as `laneway up` is
driven.
Start it, and everything in it, in the thread that lives longest.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

import httpx
import psutil

from infra.local.restarts import State
from infra.local.stack import laneway
from infra.local.state import DataFolder
from infra.local.status import get
from infra.top import Samples, parse
from tests.chaos.client import Edges
from tests.chaos.plan import LIMITED, LIMITS, USERS
from tests.services.running import MendedStack, until
from tests.tiny_tokenizer import write_tokenizer

RATE, CONTEXT = 30, 1024
PLANS = '[free]\ntier = "free"\n'
FULL_BYTES = 4096
SETTINGS = {
    "LANEWAY_SPLIT_STAGES": "true",
    "LANEWAY_REPLICAS": "2",
    "LANEWAY_SCRIPTED_RATE": str(RATE),
    "LANEWAY_THREADS": "1",
    "LANEWAY_MAX_RUNNING": "8",
    "LANEWAY_KV_BLOCKS": "256",
    "LANEWAY_REPLICA_DRAIN": "0.3",
    "LANEWAY_ACCEPT_TIMEOUT": "5",
    "LANEWAY_SEND_TIMEOUT": "3",
    "LANEWAY_KEEP_ALIVE": "1",
    "LANEWAY_ABANDON_AFTER": "6",
}


class TroubledStack(MendedStack):
    """`replica` is `scripted`, which echoes 30 tokens/s, or `model`: a tiny random Llama."""

    def __init__(self, folder: Path, replica: str = "scripted", env: Mapping[str, str] | None = None) -> None:
        self.model = _written(folder / "model", replica)
        own = {"LANEWAY_MODEL": str(self.model), "LANEWAY_REPLICA": replica}
        super().__init__(folder / "data", {**SETTINGS, **own, **(env or {})}, USERS)
        self._full: dict[str, set[int]] = {}

    def start(self) -> Self:
        """Nothing limits any user but one."""
        super().start()
        plans = self.folder / "plans.toml"
        plans.write_text(PLANS)
        self._command("plans", "apply", str(plans))
        self._command("limits", "set", LIMITED, *LIMITS)
        return self

    def _command(self, *arguments: str) -> None:
        subprocess.run(
            laneway(*arguments), env=os.environ | {"LANEWAY_DATA": str(self.folder)}, check=True, timeout=100
        )

    def tells_usage(self, user: str) -> bool:
        """Asks for the user's balances, so that they are in the log."""
        headers = {"Authorization": f"Bearer {self.keys[user]}"}
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.urls[0]}/v1/usage", headers=headers, timeout=20).status_code == 200
        return False

    def edges_of(self, user: str) -> Edges:
        return Edges(self.urls, self.keys[user])

    @property
    def names(self) -> list[str]:
        return [row.name for row in self._rows()]

    def pid(self, name: str) -> int:
        return next(row.pid for row in self._rows() if row.name == name)

    def up(self, name: str) -> bool:
        """Whether it is ready, and runs."""
        ready = next(row.state for row in self._rows() if row.name == name) == State.READY
        return ready and psutil.pid_exists(self.pid(name)) and not self.frozen(name)

    def frozen(self, name: str) -> bool:
        return self._process(name).status() == psutil.STATUS_STOPPED

    def begin(self, name: str) -> None:
        """Starts it, after killing it if it runs, and does not wait."""
        self.kill(name)
        self._stack.supervisor.restart(name)

    def leave(self, name: str) -> None:
        """Tells it to leave; it is started again once it has."""
        self._stack.supervisor.signal(name, signal.SIGTERM)

    def fill(self, name: str) -> None:
        """From now on it can make no file longer than a few bytes, nor can who takes its place."""
        self._full[name] = set()
        self.mend()

    def empty(self, name: str) -> None:
        """There is room on its disk again."""
        self._full.pop(name, None)
        _limit(self.pid(name), resource.RLIM_INFINITY)

    def mend(self) -> None:
        """One look at all: what has crashed and is due is started again."""
        self._stack.supervisor.poll()
        for name, limited in self._full.items():
            if (pid := self.pid(name)) not in limited:
                _limit(pid, FULL_BYTES)
                limited.add(pid)

    def until(self, holds: Callable[[], object]) -> None:
        until(holds, self.mend)

    def heal(self) -> None:
        """No fault is left; waits until all is ready."""
        for name in list(self._full):
            self.empty(name)
        for row in self._rows():
            if row.state == State.STOPPED:
                self._stack.supervisor.restart(row.name)
            else:
                self.thaw(row.name)
        self.until(lambda: all(self.up(name) for name in self.names))

    @contextlib.contextmanager
    def held(self, *names: str) -> Iterator[None]:
        """These stand still meanwhile."""
        for name in names:
            self.freeze(name)
        try:
            yield
        finally:
            for name in names:
                self.thaw(name)

    def resident(self) -> dict[str, tuple[float, int]]:
        """When each process that is ready began, and its resident bytes, but for those of files: torch's libraries come
        into memory a page at a time."""
        found: dict[str, tuple[float, int]] = {}
        for name in filter(self.up, self.names):
            with contextlib.suppress(psutil.NoSuchProcess):
                process = self._process(name)
                with process.oneshot():
                    memory = process.memory_info()
                    found[name] = process.create_time(), memory.rss - memory.shared
        return found

    def metrics(self, name: str) -> Samples | None:
        """What the process says of itself; None when it does not answer."""
        url = DataFolder(self.folder).running().metrics.get(name)
        body = get(url, "/metrics") if url else None
        return parse(body.decode()) if body is not None else None

    def _process(self, name: str) -> psutil.Process:
        return psutil.Process(self.pid(name))


def _written(model: Path, replica: str) -> Path:
    """A model folder of a larger context, so that replies last long enough to be hurt."""
    if replica == "model":
        from tests.tiny_llama import write_tiny_llama

        write_tiny_llama(model)
    else:
        write_tokenizer(model)
    for name, key in (("laneway.json", "context"), ("config.json", "max_position_embeddings")):
        if (file := model / name).exists():
            file.write_text(json.dumps(json.loads(file.read_text()) | {key: CONTEXT}))
    return model


def _limit(pid: int, most_bytes: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
