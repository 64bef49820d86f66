"""How much memory each process holds in the course of a run, and which of them have grown."""

from __future__ import annotations

from dataclasses import dataclass

from tests.chaos.troubled import TroubledStack
from tests.checker.violation import Violation

SETTLED_S = 20.0
MIB = 1024 * 1024
# Far over what allocators and caches of a settled process still take, and far under a leak of minutes under load. A
# Java process fills its heap of 384 MiB before it gives anything back; torch takes memory with each new shape of batch.
MOST_GROWN = {"kafka": 400 * MIB, "replica-0": 192 * MIB, "replica-1": 192 * MIB}
MOST_GROWN_OF_OTHERS = 96 * MIB


@dataclass
class Grown:
    """The resident bytes of a process when it had been ready for `SETTLED_S`, and now."""

    before: int
    now: int

    @property
    def bytes(self) -> int:
        return self.now - self.before


class Memory:
    """Of each name, the process that grew most."""

    def __init__(self) -> None:
        self._ready: dict[tuple[str, float], float] = {}
        self._of: dict[tuple[str, float], Grown] = {}

    def look(self, stack: TroubledStack, now: float) -> None:
        """`stack` tells of those that are ready, each named by when it began."""
        for name, (began, resident) in stack.resident().items():
            if resident > 0 and now - self._ready.setdefault((name, began), now) >= SETTLED_S:
                self._of.setdefault((name, began), Grown(resident, resident)).now = resident

    def most(self) -> dict[str, Grown]:
        found: dict[str, Grown] = {}
        for (name, _), grown in self._of.items():
            if name not in found or grown.bytes > found[name].bytes:
                found[name] = grown
        return dict(sorted(found.items()))

    def too_much(self) -> list[Violation]:
        return [
            Violation("memory", None, (), f"{name}: {grown.bytes // MIB} MiB more", f"at most {most // MIB}")
            for name, grown in self.most().items()
            if grown.bytes > (most := MOST_GROWN.get(name, MOST_GROWN_OF_OTHERS))
        ]
