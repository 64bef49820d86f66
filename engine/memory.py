"""How much memory there is for keys and values: what is free on this machine, and in this container."""

from __future__ import annotations

from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
WITHOUT_PROC = 4 << 30


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
