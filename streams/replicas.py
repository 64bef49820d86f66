"""Replicas as the log of heartbeats shows them, to router and supervisor alike.

Silence is measured in the log: a replica is dead when three beats of one supervisor follow its last, so a paused reader
or a frozen broker makes nobody look dead. An incarnation that was replaced in log order never comes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.events import ReplicaBeat, SupervisorBeat
from schemas.ids import Incarnation

SILENT_BEATS = 3


@dataclass(slots=True)
class Seen:
    """A slot's newest incarnation: its last beat, and how many supervisor beats have followed it."""

    beat: ReplicaBeat
    silent: int = 0

    @property
    def alive(self) -> bool:
        return self.silent < SILENT_BEATS


class Replicas:
    """`apply` returns the incarnations that died or were replaced by this very beat."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], Seen] = {}
        self._gone: set[Incarnation] = set()

    def apply(self, beat: ReplicaBeat | SupervisorBeat) -> list[Incarnation]:
        if isinstance(beat, ReplicaBeat):
            return self._replica(beat)
        dead: list[Incarnation] = []
        for seen in self._seen.values():
            seen.silent += 1
            if seen.silent == SILENT_BEATS:
                dead.append(seen.beat.incarnation)
        return dead

    def _replica(self, beat: ReplicaBeat) -> list[Incarnation]:
        if beat.incarnation in self._gone:
            return []
        key = (beat.pool, beat.slot)
        before = self._seen.get(key)
        self._seen[key] = Seen(beat)
        if before is None or before.beat.incarnation == beat.incarnation:
            return []
        self._gone.add(before.beat.incarnation)
        return [before.beat.incarnation]

    def alive(self, pool: str) -> Iterator[ReplicaBeat]:
        """The last beats of the pool's living replicas, by slot."""
        for (of_pool, _), seen in sorted(self._seen.items()):
            if of_pool == pool and seen.alive:
                yield seen.beat
