"""The supervisor with real processes: what crashes comes back, what ends is gone, whatever ended it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.local.errors import StartError
from infra.local.processes import LOG_LIMIT, Child, Process, create_time, is_alive
from infra.local.restarts import State
from infra.local.supervisor import Row, Supervisor

PATIENCE = 30.0
SLEEPER = "import time; print('here', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER


def python(name: str, code: str, log: Path | None = None, grace: float = 5.0) -> Child:
    """A child that is ready once it has printed something to `log`."""
    ready = (lambda _: log.exists() and log.stat().st_size > 0) if log else (lambda _: True)
    return Child(name, (sys.executable, "-c", code), ready=ready, grace=grace)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Watched:
    """A supervisor that remembers what it said and each change it reported."""

    def __init__(self, folder: Path) -> None:
        self.logs = folder / "logs"
        self.said: list[str] = []
        self.changes: list[list[Row]] = []
        self.supervisor = Supervisor(self.logs, self.said.append, self.changes.append)

    def sleeper(self, name: str, code: str = SLEEPER, grace: float = 5.0) -> Child:
        return python(name, code, self.logs / f"{name}.log", grace)

    def row(self, name: str) -> Row:
        return next(row for row in self.supervisor.rows() if row.name == name)

    def poll(self) -> bool:
        self.supervisor.poll()
        return True


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    found = Watched(tmp_path)
    yield found
    found.supervisor.drain()


def test_a_crashed_child_is_named_and_comes_back(watched: Watched) -> None:
    watched.supervisor.start(watched.sleeper("edge"))
    watched.supervisor.wait_ready(PATIENCE)
    first = watched.row("edge")
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: watched.poll() and watched.row("edge").restarts == 1)
    assert watched.row("edge").pid != first.pid
    (line,) = watched.said
    assert line.startswith(f"edge (pid {first.pid}) was ended by signal 9; log {first.log}")
    states = [rows[0].state for rows in watched.changes]
    assert states[:4] == [State.STARTING, State.READY, State.CRASHED, State.STARTING]


def test_a_child_that_ends_before_it_is_ready_stops_the_start_with_its_last_words(watched: Watched) -> None:
    watched.supervisor.start(python("stages", "import sys; sys.exit('no such topic')", watched.logs / "never"))
    with pytest.raises(StartError, match=r"stages .* exited with status 1(?s:.*)no such topic"):
        watched.supervisor.wait_ready(PATIENCE)


def test_drain_ends_children_in_reverse_order_of_start(watched: Watched) -> None:
    for name in ("kafka", "stages", "edge"):
        watched.supervisor.start(watched.sleeper(name))
    watched.supervisor.wait_ready(PATIENCE)
    watched.changes.clear()
    watched.supervisor.drain()
    stopped = [[row.name for row in rows if row.state == State.STOPPED] for rows in watched.changes]
    assert stopped == [["edge"], ["stages", "edge"], ["kafka", "stages", "edge"]]
    assert not any(is_alive(row.pid, row.created) for row in watched.supervisor.rows())


def test_a_child_that_ignores_sigterm_is_killed_after_its_grace(watched: Watched) -> None:
    watched.supervisor.start(watched.sleeper("stubborn", STUBBORN, grace=0.2))
    watched.supervisor.wait_ready(PATIENCE)
    watched.supervisor.stop("stubborn")
    assert not is_alive(watched.row("stubborn").pid, watched.row("stubborn").created)


def test_a_frozen_child_drains_like_any_other(watched: Watched) -> None:
    watched.supervisor.start(watched.sleeper("frozen", grace=PATIENCE))
    watched.supervisor.wait_ready(PATIENCE)
    watched.supervisor.signal("frozen", signal.SIGSTOP)
    began = time.monotonic()
    watched.supervisor.stop("frozen")
    assert time.monotonic() - began < PATIENCE


def test_a_log_starts_anew_at_its_limit_and_the_child_writes_on(tmp_path: Path) -> None:
    log = tmp_path / "much.log"
    code = f"import time; print('x' * {LOG_LIMIT + 1})\nwhile True: print('on', flush=True); time.sleep(0.01)"
    process = Process(python("much", code), log)
    try:
        until(lambda: log.exists() and log.stat().st_size > LOG_LIMIT)
        process.bound_log()
        until(lambda: log.read_text().endswith("on\n"))
        assert log.stat().st_size < LOG_LIMIT
        assert (tmp_path / "much.log.old").stat().st_size > LOG_LIMIT
    finally:
        process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells a child of its parent's end on Linux only")
def test_a_killed_supervisor_leaves_no_process(tmp_path: Path) -> None:
    code = f"""
import sys, time
from pathlib import Path
from infra.local.processes import Child
from infra.local.supervisor import Supervisor
supervisor = Supervisor(Path(sys.argv[1]), print)
supervisor.start(Child("sleeper", (sys.executable, "-c", {SLEEPER!r})))
print(supervisor.rows()[0].pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        created = create_time(pid)
        until(lambda: (tmp_path / "sleeper.log").read_text() == "here\n")
        parent.kill()
    until(lambda: not is_alive(pid, created))
