"""A terminal with a command in it, as far as a test needs one: its size, what it was told to show, keys to press."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tests.services.running import until

HOME, ALTERNATE, NORMAL, HIDE, SHOW = b"\x1b[H", b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25l", b"\x1b[?25h"
CTRL_C = b"\x03"
_CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`shown`: all bytes so far. The command leads a session of its own, so that keys reach it as signals."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], rows: int, columns: int) -> None:
        self._ours, self._theirs = pty.openpty()
        self.shown = b""
        self.resize(rows, columns)
        self.modes = self._modes()
        self.process = subprocess.Popen(
            command, env={**env, "TERM": "xterm-256color"}, stdin=self._theirs, stdout=self._theirs,
            stderr=self._theirs, start_new_session=True, preexec_fn=_take_terminal,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def pictures(self) -> list[list[str]]:
        """What it was told to show, picture by picture, as lines without colours; the last may not be whole."""
        self._read()
        _, *pictures = self.shown.split(HOME)
        return [
            _CONTROL.sub(b"", picture).decode(errors="replace").replace("\r", "").split("\n") for picture in pictures
        ]

    def until(self, text: str) -> list[str]:
        """Waits for a picture that comes from now on and has the text in it."""
        seen = len(self.pictures())

        def found() -> list[list[str]]:
            return [lines for lines in self.pictures()[seen:-1] if text in "\n".join(lines)]

        until(found)
        return found()[0]

    def exit_status(self) -> int:
        """Waits for the command's end; the terminal then has its modes."""
        until(lambda: self._read() or self.process.poll() is not None)
        return self.process.wait()

    def is_as_before(self) -> bool:
        """The normal screen, a cursor, the modes of before, and nothing said on the way out."""
        self._read()
        last = self.shown.rpartition(ALTERNATE)[2]
        left = last.rpartition(NORMAL)[2] if NORMAL in last else last
        hidden = last.rfind(HIDE) > last.rfind(SHOW)
        return not hidden and not _CONTROL.sub(b"", left).strip() and self._modes() == self.modes

    def _read(self) -> None:
        while select.select([self._ours], [], [], 0)[0]:
            self.shown += os.read(self._ours, 65536)

    def _modes(self) -> list[Any]:
        return termios.tcgetattr(self._theirs)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # who starts the tests in the background has it ignored
