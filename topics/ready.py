"""How a process without an HTTP port says that it is ready: its pid, in the file that its starter named."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

READY_FILE = "LANEWAY_READY_FILE"


def announce(environ: Mapping[str, str]) -> None:
    """Writes this process's pid to the file named by LANEWAY_READY_FILE; does nothing if none is named."""
    if name := environ.get(READY_FILE):
        Path(name).write_text(str(os.getpid()))
