"""Child processes: each with its log file, tethered to this process and to the readiness it must show.

In: a Child, which says what to run. Out: a Process, which runs it in its own session (a Ctrl-C in
the terminal is not for it) and ends with the thread that started it, even after kill -9.
Log files are bounded: past LOG_LIMIT bytes the file moves to `<name>.log.old` and starts anew.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

LOG_LIMIT = 4 * 1024 * 1024
TETHER = Path(__file__).with_name("tether.py")


def at_once(_: int) -> bool:
    return True


@dataclass(frozen=True)
class Child:
    """What to run; `ready(pid)` is asked until it says yes, `grace` is the seconds between SIGTERM and SIGKILL."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    ready: Callable[[int], bool] = at_once
    grace: float = 10.0


class Process:
    """A running child. Start it from a thread that lives as long as the child shall."""

    def __init__(self, child: Child, log: Path) -> None:
        self.child = child
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), *child.argv]
        with log.open("ab") as out:
            self._first_byte = out.tell()
            self._popen = subprocess.Popen(
                command,
                env={**os.environ, **child.env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._popen.pid
        self.created = create_time(self.pid)

    def exit_status(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._popen.poll()

    def send(self, signum: int) -> None:
        self._popen.send_signal(signum)

    def wait(self, timeout: float) -> bool:
        """Whether it has ended within `timeout` seconds."""
        try:
            self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, grace: float | None = None) -> None:
        """SIGTERM (a frozen one is thawed for it), then after the grace SIGKILL to it and to whatever it started."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)
        if not self.wait(self.child.grace if grace is None else grace):
            self.kill()

    def kill(self) -> None:
        if self.exit_status() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._popen.wait()

    def last_words(self, count: int = 8) -> str:
        """The end of what it has logged, for a message that says why it is gone."""
        size = self.log.stat().st_size
        start = self._first_byte if self._first_byte <= size else 0
        with self.log.open("rb") as file:
            file.seek(max(start, size - 8192))
            lines = file.read().decode(errors="replace").splitlines()
        return "\n".join(f"    {line}" for line in lines[-count:])

    def bound_log(self) -> None:
        """The child appends, so emptying its file under it is safe; a line written meanwhile may be lost."""
        if self.log.stat().st_size > LOG_LIMIT:
            shutil.copyfile(self.log, self.log.with_name(self.log.name + ".old"))
            os.truncate(self.log, 0)


def create_time(pid: int) -> float | None:
    """Seconds since the epoch; with the pid it names a process for good. None when there is none."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None


def is_alive(pid: int, created: float | None) -> bool:
    """Whether that very process runs: pids are used again, pairs of pid and time are not."""
    try:
        process = psutil.Process(pid)
        same = created is None or abs(process.create_time() - created) < 1.0
        return same and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
