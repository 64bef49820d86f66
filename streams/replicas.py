"""Replicas as the log of heartbeats shows them, to router and supervisor alike.

Silence is measured in the log: a replica is dead when three beats of one supervisor follow its last, so a paused reader
or a frozen broker makes nobody look dead. An incarnation that was replaced in log order never comes back. Anybody may
append a beat: one that no replica of this cell can have sent means nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from schemas.events import ReplicaBeat, SupervisorBeat
from schemas.ids import Incarnation, ReplyId
from topics.outputs import Routes

SILENT_BEATS = 3
LONGEST_INCARNATION = 128


@dataclass(slots=True)
class Seen:
    """A slot's newest incarnation: its last beat, and the beats of each supervisor that have followed it."""

    beat: ReplicaBeat
    followed: defaultdict[Incarnation, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def alive(self) -> bool:
        return max(self.followed.values(), default=0) < SILENT_BEATS


class Replicas:
    """Folds the topic `replicas` from its oldest record on."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._seen: dict[tuple[str, int], Seen] = {}
        self._gone: set[Incarnation] = set()
        self._beats: defaultdict[Incarnation, int] = defaultdict(int)
        self._missed: dict[tuple[Incarnation, Incarnation], int] = {}

    def apply(self, beat: ReplicaBeat | SupervisorBeat) -> bool:
        """Takes a beat in; False for one that means nothing: of a replaced incarnation, or of no replica."""
        if isinstance(beat, SupervisorBeat):
            self._beats[beat.incarnation] += 1
            for seen in self._seen.values():
                seen.followed[beat.incarnation] += 1
            return True
        if beat.incarnation in self._gone or not self._possible(beat):
            return False
        key = (beat.pool, beat.slot)
        before = self._seen.get(key)
        if before is not None and before.beat.incarnation != beat.incarnation:
            self._gone.add(before.beat.incarnation)
        self._seen[key] = Seen(beat)
        return True

    def _possible(self, beat: ReplicaBeat) -> bool:
        known = self._routes.has_replica(beat.pool, beat.slot) and len(beat.incarnation) <= LONGEST_INCARNATION
        return known and min(beat.capacity, beat.running, beat.waiting) >= 0

    def alive(self, pool: str) -> Iterator[ReplicaBeat]:
        """The last beats of the pool's living replicas, by slot."""
        for (of_pool, _), seen in sorted(self._seen.items()):
            if of_pool == pool and seen.alive:
                yield seen.beat

    def dead(self, incarnation: Incarnation, supervisor: Incarnation) -> bool:
        """Whether `supervisor` may fence it: replaced, or silent for three of that supervisor's own beats.

        One of which no beat is known - expired, or not read yet - is counted from when it was first asked for.
        """
        if incarnation in self._gone:
            return True
        for seen in self._seen.values():
            if seen.beat.incarnation == incarnation:
                return seen.followed[supervisor] >= SILENT_BEATS
        missed_since = self._missed.setdefault((incarnation, supervisor), self._beats[supervisor])
        return self._beats[supervisor] - missed_since >= SILENT_BEATS

    def dropped(self, incarnation: Incarnation, reply: ReplyId, attempt: int) -> bool:
        """Whether the replica says that it gave this attempt up."""
        beats = (seen.beat for seen in self._seen.values() if seen.beat.incarnation == incarnation)
        return any(drop.reply == reply and drop.attempt == attempt for beat in beats for drop in beat.dropped)
