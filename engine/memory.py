"""How much memory there is for keys and values: what is free on this machine, and in this container; and how the
allocator keeps what a step has freed for the next one.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
WITHOUT_PROC = 4 << 30
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of mallopt's parameters, from malloc.h


def available_bytes(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int:
    """Free memory, or what is left of the container's limit if that is less; 4 GiB where neither can be read."""
    found = [WITHOUT_PROC]
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        found = [int(fields["MemAvailable"].split()[0]) * 1024]
    limit = cgroup / "memory.max"
    if limit.exists() and (text := limit.read_text().strip()) != "max":
        found.append(max(0, int(text) - int((cgroup / "memory.current").read_text())))
    return min(found)


def fitting_blocks(block_bytes: int, share: float, most: int) -> int:
    """As many blocks as fit a share of the free memory, one at least and no more than `most`."""
    return max(1, min(most, int(available_bytes() * share) // block_bytes))


def keep_freed_memory() -> None:
    """Else glibc maps large tensors anew each step, and the system clears their pages. Other allocators are let be."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 1 << 30)
        mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)
