"""Keeps child processes up: starts them in order, restarts what crashes, drains in reverse order.

In: Child specs. Out: running processes, one line per crash through `say`, and `changed` after each
change of a state. What to do is decided in `restarts`; here it is done. Nothing happens between
calls: `poll` is the heartbeat, and no process outlives `drain`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from infra.local.errors import StartError
from infra.local.processes import Child, Process
from infra.local.restarts import State, Watch, delay, observe

INTERVAL = 0.1


@dataclass
class Supervised:
    child: Child
    process: Process
    watch: Watch


@dataclass(frozen=True)
class Row:
    """One process as `up.json` and `laneway status` show it."""

    name: str
    pid: int
    created: float | None
    state: str
    restarts: int
    log: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Supervisor:
    def __init__(
        self, logs: Path, say: Callable[[str], None], changed: Callable[[list[Row]], None] = lambda _: None
    ) -> None:
        self._logs, self._say, self._changed = logs, say, changed
        self._all: dict[str, Supervised] = {}

    def start(self, child: Child) -> None:
        self._all[child.name] = Supervised(child, self._spawn(child), Watch(State.STARTING, time.monotonic()))
        self._changed(self.rows())

    def wait_ready(self, timeout: float) -> None:
        """Until every child is ready. Raises StartError when one ends before that, or time runs out."""
        deadline = time.monotonic() + timeout
        while True:
            for one in self._look_at_all():
                raise StartError(f"{self._obituary(one)}, before all was ready:\n{one.process.last_words()}")
            waiting = [one for one in self._all.values() if one.watch.state is State.STARTING]
            if not waiting:
                return
            if time.monotonic() > deadline:
                slow = "; ".join(f"{one.child.name} (log {one.process.log})" for one in waiting)
                raise StartError(f"not ready after {timeout:.0f} s: {slow}:\n{waiting[0].process.last_words()}")
            time.sleep(INTERVAL)

    def run(self) -> None:
        """Supervises until an exception, such as KeyboardInterrupt, ends it."""
        while True:
            self.poll()
            time.sleep(INTERVAL)

    def poll(self) -> None:
        """One look at every child: note who is ready or gone, start again who is due, bound the logs."""
        for one in self._look_at_all():
            self._say(f"{self._obituary(one)}; starts again in {delay(one.watch.streak):g} s")

    def drain(self) -> None:
        """Stops all in reverse order of start, each within its grace; an interrupt kills what is left."""
        try:
            for name in reversed(self._all):
                self.stop(name)
        finally:
            for one in self._all.values():
                one.process.kill()

    def stop(self, name: str, signum: int = signal.SIGTERM) -> int | None:
        """Ends one child, which is not started again by itself; its exit status, negative if a signal ended it."""
        one = self._all[name]
        one.watch = replace(one.watch, state=State.STOPPED, since=time.monotonic())
        if signum == signal.SIGKILL:
            one.process.kill()
        else:
            one.process.stop()
        self._changed(self.rows())
        return one.process.exit_status()

    def restart(self, name: str) -> None:
        """Starts a child again, which is stopped first if it runs."""
        one = self._all[name]
        self.stop(name)
        one.process = self._spawn(one.child)
        one.watch = replace(one.watch, state=State.STARTING, since=time.monotonic(), restarts=one.watch.restarts + 1)
        self._changed(self.rows())

    def signal(self, name: str, signum: int) -> None:
        self._all[name].process.send(signum)

    def rows(self) -> list[Row]:
        return [
            Row(name, one.process.pid, one.process.created, one.watch.state, one.watch.restarts, str(one.process.log))
            for name, one in self._all.items()
        ]

    def _spawn(self, child: Child) -> Process:
        return Process(child, self._logs / f"{child.name}.log")

    def _look_at_all(self) -> list[Supervised]:
        """Those found crashed; a restart that is due is done."""
        before = self.rows()
        crashed = [one for one in self._all.values() if self._look(one) is State.CRASHED]
        if (after := self.rows()) != before:
            self._changed(after)
        return crashed

    def _look(self, one: Supervised) -> State | None:
        """The state that the child has moved to, if it has moved."""
        exited = one.process.exit_status() is not None
        ready = one.watch.state is State.STARTING and not exited and one.child.ready(one.process.pid)
        before, one.watch = one.watch, observe(one.watch, time.monotonic(), exited=exited, ready=ready)
        one.process.bound_log()
        if one.watch.state is before.state:
            return None
        if one.watch.state is State.STARTING:
            one.process = self._spawn(one.child)
        return one.watch.state

    def _obituary(self, one: Supervised) -> str:
        status = one.process.exit_status()
        killed = status is not None and status < 0
        how = f"was ended by signal {-(status or 0)}" if killed else f"exited with status {status}"
        return f"{one.child.name} (pid {one.process.pid}) {how}; log {one.process.log}"
