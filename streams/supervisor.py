"""Supervisor: a reply whose replica is lost goes on at another one, none stays open past its deadline or for nobody,
and no replica works for a reply that it no longer serves.

Its clock is its own beats in `replicas` and `edges`, read back: time passes for it only as far as the log has moved. A
snapshot of each partition is committed every few beats, and a restart goes on from there; before it has caught up it
acts on no reply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from schemas import reply_records as r
from schemas.events import AbortReply, EdgeBeat, ReplicaBeat, SupervisorBeat, pack_ids
from schemas.ids import Incarnation, ReplyId, reply_partition
from schemas.kept_records import ReplyKept
from schemas.reply import Record, Reply, State, Verdict
from streams.edges import Edges
from streams.replicas import BEAT_AFTER_S, Replicas
from streams.reply_table import ReplyTable, Watched
from streams.snapshots import WatchedPartition
from streams.stage import NOTHING, ContinuationWanted, Decision, Message, Stage
from topics.catalog import EDGES, LONGEST_DEADLINE_MS, REPLICAS, REPLIES, SUPERVISOR_STATE
from topics.log import Place, Position
from topics.outputs import Output, Routes

MOST_ATTEMPTS = 5
SNAPSHOT_BEATS = 10
CANCEL_AFTER_S = 3.0  # a client that is sent to another edge is not gone
UNWANTED = (Verdict.ENDED, Verdict.STALE, Verdict.FOREIGN)


@dataclass(frozen=True)
class Patience:
    """Seconds that a reply goes on without a listener, and waits while its pool has no replica that takes requests."""

    abandoned_s: float = 30.0
    stranded_s: float = 60.0


USUAL = Patience()


class Supervisor(Stage):
    name = "supervisor"
    inputs = (REPLIES,)
    broadcast = (REPLICAS, EDGES)
    changelog = SUPERVISOR_STATE
    transactional = True
    waits_to_catch_up = True  # a reply that looks lost half-way may have ended further on
    keeps_dead_letters = False  # settlement reads the same topic and puts its bad records aside

    def __init__(self, incarnation: Incarnation, routes: Routes, patience: Patience = USUAL) -> None:
        self._incarnation = incarnation
        self._routes = routes
        self._patience = patience
        self._partitions: dict[Place, WatchedPartition] = {}
        self._replicas, self._edges = Replicas(routes), Edges(incarnation)
        self._unread: set[str] = set()
        self._read_back_at: float | None = None
        self._beats = 0
        self._requested: set[tuple[ReplyId, int]] = set()
        self._alone: Counter[ReplyId] = Counter()
        self._without_replica: Counter[str] = Counter()

    def apply(self, message: Message) -> Decision:
        if message.place.topic in self.broadcast:
            return self._beat(message)
        change = self._partitions[message.place].apply(message)
        event, watched = message.event, change.watched
        if change.verdict is Verdict.COUNTED and isinstance(event, r.Tokens):
            return NOTHING  # as nearly always
        if isinstance(event, r.Dispatched | r.Started) and message.reply:
            if watched is None or change.verdict in UNWANTED:
                aborts = self._abort(message.reply, event.attempt, event.replica, event.incarnation)
                return Decision(first=tuple(aborts))
        elif watched and change.ended:
            self._forget(watched.reply.id)
            return Decision(first=tuple(self._abort_all(watched.reply)))
        elif watched and change.verdict is Verdict.GAP:
            return Decision(first=(self._fence(watched.reply),))
        elif watched and change.verdict is Verdict.COUNTED and isinstance(event, r.AttemptOpened):
            caught_up = self._partitions[message.place].caught_up
            wanted = self._continuations([watched] if caught_up else [])
            return Decision(first=tuple(self._abort_all(watched.reply)), wanted=tuple(wanted))
        elif watched and isinstance(event, r.ListenerAttached):
            self._alone.pop(watched.reply.id, None)
        return NOTHING

    def _forget(self, ended: ReplyId) -> None:
        self._alone.pop(ended, None)
        self._requested = {(reply, attempt) for reply, attempt in self._requested if reply != ended}

    def _beat(self, message: Message) -> Decision:
        """On its own beat in `replicas` the supervisor looks at every open reply."""
        beat, topic = message.event, message.place.topic
        mine = isinstance(beat, SupervisorBeat) and beat.incarnation == self._incarnation
        if mine:
            self._unread.discard(topic)
        if topic == EDGES:
            if isinstance(beat, EdgeBeat | SupervisorBeat):
                self._edges.apply(beat)
            return NOTHING
        if isinstance(beat, ReplicaBeat | SupervisorBeat):
            self._replicas.apply(beat)
        if isinstance(beat, ReplicaBeat):
            return Decision(first=(*self._forgettable(beat), *self._handed_over(beat)))
        return self._look(message.at_ms) if mine else NOTHING

    def _look(self, now_ms: int) -> Decision:
        """What is late, abandoned, stranded or lost, and what waits to be continued."""
        self._beats += 1
        for pool in self._routes.sizes.pools:
            ready = any(beat.state == "ready" for beat in self._replicas.alive(pool))
            self._without_replica[pool] = 0 if ready else self._without_replica[pool] + 1
        ends: list[Output] = []
        watched: list[Watched] = []
        for partition in self._partitions.values():
            partition.snapshot_due |= self._beats % SNAPSHOT_BEATS == 0
            for one in partition.table.open() if partition.caught_up else ():
                watched.append(one)
                if record := self._due(one, partition.last_offset, now_ms):
                    ends.append(self._routes.reply(one.reply.id, record))
        return Decision(first=tuple(ends), wanted=tuple(self._continuations(watched)))

    def _due(self, watched: Watched, seen: int, now_ms: int) -> Record | None:
        """What is to be written of an open reply now."""
        reply = watched.reply
        if _late(watched, now_ms):
            return r.Failed("deadline")
        if self._abandoned(reply):
            return r.Stopped("abandoned", seen)
        if self._orphaned(reply):
            return self._after_loss(reply)
        return r.Failed("no_replica") if not self._serving(reply) and self._stranded(watched, now_ms) else None

    def _abandoned(self, reply: Reply) -> bool:
        """Whether nobody has listened for as long as its client wants it to go on for nobody."""
        wanted = reply.accepted.on_disconnect if reply.accepted else "continue"
        if wanted == "continue" or any(self._edges.alive(Incarnation(edge)) for edge, _ in reply.listeners):
            self._alone.pop(reply.id, None)
            return False
        self._alone[reply.id] += 1
        had_a_listener = reply.attached_offset >= 0
        patience_s = CANCEL_AFTER_S if wanted == "cancel" and had_a_listener else self._patience.abandoned_s
        return self._alone[reply.id] * BEAT_AFTER_S >= patience_s

    def _serving(self, reply: Reply) -> list[Incarnation]:
        """Who has the current attempt: its owner, or all that were given it."""
        if reply.owner is not None:
            return [reply.owner]
        return [incarnation for attempt, _, incarnation in reply.addressees if attempt == reply.attempt]

    def _orphaned(self, reply: Reply) -> bool:
        """Whether all who have the current attempt are lost; nobody has it yet is another matter."""
        serving = self._serving(reply)
        return bool(serving) and all(self._lost(reply, incarnation) for incarnation in serving)

    def _lost(self, reply: Reply, incarnation: Incarnation) -> bool:
        dead = self._replicas.dead(incarnation, self._incarnation)
        return dead or self._replicas.dropped(incarnation, reply.id, reply.attempt)

    def _stranded(self, watched: Watched, now_ms: int) -> bool:
        """Whether it has waited, and its pool been without a replica that takes requests, for longer than it may."""
        pool, most_s = watched.reply.accepted.pool if watched.reply.accepted else "", self._patience.stranded_s
        without_s = self._without_replica[pool] * BEAT_AFTER_S
        return without_s >= most_s and now_ms - watched.accepted_ms >= most_s * 1000

    def _forgettable(self, beat: ReplicaBeat) -> Iterator[Output]:
        """Aborts what a replica names as dropped though it serves it no more: it may have been told before it dropped
        it, or have written the end that it believes lost. It names it until it is told."""
        for drop in beat.dropped:
            table = self._table_of(drop.reply)
            if table is not None and table.is_over(drop.reply, drop.attempt):
                yield from self._abort(drop.reply, drop.attempt, f"{beat.pool}/{beat.slot}", beat.incarnation)

    def _handed_over(self, beat: ReplicaBeat) -> Iterator[Output]:
        """Fences what a replica says that it dropped: that takes no clock, so it need not wait for the next look."""
        for drop in beat.dropped:
            table = self._table_of(drop.reply)
            watched = table.get(drop.reply) if table else None
            if watched and not watched.reply.state.ended and self._orphaned(watched.reply):
                yield self._fence(watched.reply)

    def _table_of(self, reply: ReplyId) -> ReplyTable | None:
        """Of a partition that is this supervisor's, and read to its end."""
        place = Place(REPLIES, reply_partition(reply)) if self._routes.has(reply) else None
        partition = self._partitions.get(place) if place else None
        return partition.table if partition and partition.caught_up else None

    def _fence(self, reply: Reply) -> Output:
        return self._routes.reply(reply.id, self._after_loss(reply))

    def _after_loss(self, reply: Reply) -> Record:
        return r.Failed("replica_lost") if reply.attempt >= MOST_ATTEMPTS else r.AttemptOpened(reply.attempt + 1)

    def _continuations(self, watched: list[Watched]) -> Iterator[ContinuationWanted]:
        """Once for each attempt that is not dispatched; again after a restart, which costs time, never text."""
        for reply in (w.reply for w in watched):
            dispatched = any(attempt == reply.attempt for attempt, _, _ in reply.addressees)
            key = (reply.id, reply.attempt)
            if reply.state is State.RESUMING and not dispatched and reply.request and key not in self._requested:
                self._requested.add(key)
                yield ContinuationWanted(reply.id, reply.attempt, reply.request, pack_ids(reply.ids))

    def _abort_all(self, reply: Reply) -> Iterator[Output]:
        """For every replica that was given an attempt, but for one that has just finished it or has the current one."""
        for attempt, replica, incarnation in reply.addressees:
            done = isinstance(reply.end, r.Finished) and incarnation == reply.owner
            if not done and (reply.state.ended or attempt < reply.attempt):
                yield from self._abort(reply.id, attempt, replica, incarnation)

    def _abort(self, reply: ReplyId, attempt: int, replica: str, incarnation: Incarnation) -> Iterator[Output]:
        """Nothing for a name that no replica of the cell has: anybody may write one."""
        pool, _, slot = replica.rpartition("/")
        if slot.isdecimal() and len(slot) < 6 and self._routes.has_replica(pool, int(slot)):
            yield self._routes.command(pool, int(slot), AbortReply(reply, attempt, incarnation))

    def assigned(self, place: Place, committed: Position | None) -> int | None:
        self._partitions[place] = WatchedPartition(committed)
        return None

    def restore(self, place: Place, key: bytes, event: Any) -> None:
        if event is None or isinstance(event, ReplyKept):
            self._partitions[place].restore(ReplyId(key.decode("ascii", "replace")), event)

    def restored(self, place: Place) -> Decision:
        self._partitions[place].restored()
        return NOTHING

    def caught_up(self, place: Place) -> None:
        self._partitions[place].caught_up = True

    def revoked(self, place: Place) -> None:
        """Whoever has it next counts anew, and so does this one when it comes back."""
        self._partitions.pop(place, None)
        gone = place.partition
        self._alone = Counter({reply: n for reply, n in self._alone.items() if reply_partition(reply) != gone})
        self._requested = {(reply, n) for reply, n in self._requested if reply_partition(reply) != gone}

    def position(self, place: Place, offset: int) -> Position:
        return self._partitions[place].position(offset)

    def changes(self) -> Iterable[Output]:
        for partition in self._partitions.values():
            for reply, kept in partition.snapshot():
                yield self._routes.supervisor_state(reply, kept)

    def ticks(self, now: float) -> Iterator[Output]:
        if self._unread:
            return
        if self._read_back_at is None:
            self._read_back_at = now
        elif now - self._read_back_at >= BEAT_AFTER_S:
            self._read_back_at, self._unread = None, set(self.broadcast)
            beat = SupervisorBeat(self._incarnation)
            yield self._routes.replica_beat("supervisor", beat)
            yield self._routes.edge_beat("supervisor", beat)


def _late(watched: Watched, now_ms: int) -> bool:
    """Past its deadline, or past any that intake grants: anybody may write an Accepted."""
    accepted = watched.reply.accepted
    return accepted is not None and now_ms > min(accepted.deadline_ms, watched.accepted_ms + LONGEST_DEADLINE_MS)
