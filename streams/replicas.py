"""Replicas as the log of heartbeats shows them, to router and supervisor alike.

Silence is measured in the log: a replica is dead when three beats of one supervisor follow its last, so a paused reader
or a frozen broker makes nobody look dead. One that beats but takes no step, though it has something to do, is as dead:
after ten times its own slowest steps. An incarnation that was replaced in log order never comes back. Anybody may
append a beat: one that no replica of this cell can have sent means nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from schemas.events import AttemptDropped, ReplicaBeat, SupervisorBeat
from schemas.ids import Incarnation, ReplyId
from topics.outputs import Routes

BEAT_AFTER_S = 0.5  # a supervisor's beats are at least so far apart
SILENT_BEATS = 3
STUCK_STEPS, STUCK_LEAST_S, FIRST_STEP_S = 10, 5.0, 30.0
LONGEST_INCARNATION = 128


def _none() -> defaultdict[Incarnation, int]:
    return defaultdict(int)


@dataclass(slots=True)
class Seen:
    """A slot's newest incarnation: its last beat, and how many beats of each supervisor have `followed` it, or have
    come while it stood `still`: since its last step, or since it had nothing to do.
    """

    beat: ReplicaBeat
    followed: defaultdict[Incarnation, int] = field(default_factory=_none)
    still: defaultdict[Incarnation, int] = field(default_factory=_none)
    dropped: frozenset[AttemptDropped] = field(init=False)

    def __post_init__(self) -> None:
        self.dropped = frozenset(self.beat.dropped)

    def next(self, beat: ReplicaBeat) -> Seen:
        """After a later beat of the same incarnation."""
        moved = beat.step != self.beat.step or not _busy(beat)
        return Seen(beat, still=_none() if moved else self.still)

    def supervised(self, by: Incarnation) -> None:
        """A beat of this supervisor has come."""
        self.followed[by] += 1
        self.still[by] += _busy(self.beat)

    def dead(self, supervisor: Incarnation) -> bool:
        """Whether it was silent, or stuck, for as many of the supervisor's beats as it takes."""
        slowest_s = self.beat.p99_step_ms / 1000
        patience_s = max(STUCK_LEAST_S, STUCK_STEPS * slowest_s) if slowest_s else FIRST_STEP_S
        stuck = self.still[supervisor] * BEAT_AFTER_S >= patience_s
        return stuck or self.followed[supervisor] >= SILENT_BEATS

    @property
    def alive(self) -> bool:
        return not any(map(self.dead, {*self.followed, *self.still}))


def _busy(beat: ReplicaBeat) -> bool:
    return beat.running + beat.waiting > 0


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
                seen.supervised(beat.incarnation)
            return True
        if beat.incarnation in self._gone or not self._possible(beat):
            return False
        key = (beat.pool, beat.slot)
        before = self._seen.get(key)
        if before is not None and before.beat.incarnation != beat.incarnation:
            self._gone.add(before.beat.incarnation)
        same = before is not None and before.beat.incarnation == beat.incarnation
        self._seen[key] = before.next(beat) if before is not None and same else Seen(beat)
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
        """Whether `supervisor` may fence it: replaced, or silent or stuck for so many of that supervisor's own beats.

        One of which no beat is known - expired, or not read yet - is counted from when it was first asked for.
        """
        if incarnation in self._gone:
            return True
        for seen in self._seen.values():
            if seen.beat.incarnation == incarnation:
                return seen.dead(supervisor)
        missed_since = self._missed.setdefault((incarnation, supervisor), self._beats[supervisor])
        return self._beats[supervisor] - missed_since >= SILENT_BEATS

    def dropped(self, incarnation: Incarnation, reply: ReplyId, attempt: int) -> bool:
        """Whether the replica says that it gave this attempt up."""
        named = AttemptDropped(reply, attempt)
        return any(seen.beat.incarnation == incarnation and named in seen.dropped for seen in self._seen.values())
