"""A whole stack that tests may break, and waiting for what it will come to.

Processes that crash by themselves come back as those of `laneway up` do, but only while a test waits with `until`;
what a test kills stays dead until it restarts it. Everything that starts a process runs in the test's own thread.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator

from infra.local.restarts import State
from infra.local.supervisor import Row
from tests.stack import Stack

PATIENCE_S = 300.0
REPLICA = "replica-0"


def until(holds: Callable[[], object], meanwhile: Callable[[], object] = lambda: None) -> None:
    """Waits until it holds; a test fails by this only when it never would."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        meanwhile()
        time.sleep(0.05)


class MendedStack(Stack):
    """A stack whose crashed processes start again while something is waited for."""

    def until(self, holds: Callable[[], object]) -> None:
        until(holds, self._stack.supervisor.poll)

    def restart(self, *names: str) -> None:
        for name in names:
            self._stack.supervisor.restart(name)
        self.until(self._all_ready)

    def crashes(self) -> dict[str, int]:
        """How often each process was started again, by whomever."""
        self._stack.supervisor.poll()
        return {row.name: row.restarts for row in self._rows()}

    @contextlib.contextmanager
    def without(self, *names: str, signum: int = signal.SIGKILL) -> Iterator[None]:
        """Ends processes, as kill -9 does or in their own time with SIGTERM, and starts them again afterwards."""
        for name in names:
            self.kill(name, signum)
        try:
            yield
        finally:
            self.restart(*names)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stops everything in order, and starts it again on the same folder afterwards."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def _all_ready(self) -> bool:
        return all(row.state in (State.READY, State.STOPPED) for row in self._rows())

    def _rows(self) -> list[Row]:
        return self._stack.supervisor.rows()
