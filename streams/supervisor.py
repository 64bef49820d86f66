"""Supervisor: a reply whose replica is lost goes on at another one, none stays open past its deadline, and no replica
works for a reply that it no longer serves.

Its clock is its own beats in `replicas`, read back: time passes for it only as far as the log has moved. It commits
the low-water mark of its table, so a restart folds every open reply again from its first record; before it has caught
up it acts on none of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from schemas import reply_records as r
from schemas.events import AbortReply, ReplicaBeat, SupervisorBeat, pack_ids
from schemas.ids import Incarnation, ReplyId, reply_partition
from schemas.reply import Reply, State, Verdict
from streams.replicas import Replicas
from streams.reply_table import ReplyTable, Watched
from streams.stage import NOTHING, ContinuationWanted, Decision, Message, Stage
from topics.catalog import LONGEST_DEADLINE_MS, REPLICAS, REPLIES
from topics.log import Place, Position
from topics.outputs import Output, Routes

MOST_ATTEMPTS = 5
BEAT_AFTER_S = 0.5
UNWANTED = (Verdict.ENDED, Verdict.STALE, Verdict.FOREIGN)


class Supervisor(Stage):
    name = "supervisor"
    inputs = (REPLIES,)
    broadcast = (REPLICAS,)
    waits_to_catch_up = True  # a reply that looks lost half-way may have ended further on
    keeps_dead_letters = False  # settlement reads the same topic and puts its bad records aside

    def __init__(self, incarnation: Incarnation, routes: Routes) -> None:
        self._incarnation = incarnation
        self._routes = routes
        self._tables: dict[Place, ReplyTable] = {}
        self._caught_up: set[Place] = set()
        self._replicas = Replicas(routes)
        self._beat_due = True
        self._read_back_at: float | None = None
        self._requested: set[tuple[ReplyId, int]] = set()

    def apply(self, message: Message) -> Decision:
        if message.place.topic == REPLICAS:
            return self._beat(message)
        change = self._tables[message.place].apply(message)
        event, watched = message.event, change.watched
        if isinstance(event, r.Dispatched | r.Started) and message.reply:
            if watched is None or change.verdict in UNWANTED:
                aborts = self._abort(message.reply, event.attempt, event.replica, event.incarnation)
                return Decision(first=tuple(aborts))
        elif watched and change.ended:
            self._requested = {(reply, n) for reply, n in self._requested if reply != message.reply}
            return Decision(first=tuple(self._abort_all(watched.reply)))
        elif watched and change.verdict is Verdict.GAP:
            return Decision(first=(self._fence(watched.reply),))
        elif watched and change.verdict is Verdict.COUNTED and isinstance(event, r.AttemptOpened):
            return Decision(first=tuple(self._abort_all(watched.reply)))
        return NOTHING

    def _beat(self, message: Message) -> Decision:
        """On its own beat the supervisor looks at every open reply: late, lost, or waiting to be continued."""
        if isinstance(message.event, ReplicaBeat | SupervisorBeat):
            self._replicas.apply(message.event)
        if isinstance(message.event, ReplicaBeat):
            return Decision(first=tuple(self._forgettable(message.event)))
        if not isinstance(message.event, SupervisorBeat) or message.event.incarnation != self._incarnation:
            return NOTHING
        self._beat_due = True
        watched = [w for place, table in self._tables.items() if place in self._caught_up for w in table.open()]
        late = [self._routes.reply(w.reply.id, r.Failed("deadline")) for w in watched if _late(w, message.at_ms)]
        lost = [self._fence(w.reply) for w in watched if self._lost(w.reply)]
        return Decision(first=(*late, *lost), wanted=tuple(self._continuations(watched)))

    def _lost(self, reply: Reply) -> bool:
        """Whether the replica that has the current attempt is dead or has dropped it."""
        serving = [incarnation for attempt, _, incarnation in reply.addressees if attempt == reply.attempt]
        if reply.owner is not None:
            serving = [reply.owner]
        return bool(serving) and all(
            self._replicas.dead(incarnation, self._incarnation)
            or self._replicas.dropped(incarnation, reply.id, reply.attempt)
            for incarnation in serving
        )

    def _forgettable(self, beat: ReplicaBeat) -> Iterator[Output]:
        """Aborts what a replica names as dropped though it serves it no more: it may have been told before it dropped
        it, or have written the end that it believes lost. It names it until it is told."""
        for drop in beat.dropped:
            table = self._table_of(drop.reply)
            if table is not None and table.is_over(drop.reply, drop.attempt):
                yield from self._abort(drop.reply, drop.attempt, f"{beat.pool}/{beat.slot}", beat.incarnation)

    def _table_of(self, reply: ReplyId) -> ReplyTable | None:
        """Of a partition that is this supervisor's, and read to its end."""
        place = Place(REPLIES, reply_partition(reply)) if self._routes.has(reply) else None
        return self._tables[place] if place in self._caught_up else None

    def _fence(self, reply: Reply) -> Output:
        record = r.Failed("replica_lost") if reply.attempt >= MOST_ATTEMPTS else r.AttemptOpened(reply.attempt + 1)
        return self._routes.reply(reply.id, record)

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
        self._tables[place] = ReplyTable()
        return None

    def caught_up(self, place: Place) -> None:
        self._caught_up.add(place)

    def revoked(self, place: Place) -> None:
        self._tables.pop(place, None)
        self._caught_up.discard(place)

    def position(self, place: Place, offset: int) -> Position:
        return Position(self._tables[place].low_water(offset))

    def ticks(self, now: float) -> Iterator[Output]:
        if self._read_back_at is None and self._beat_due:
            self._read_back_at = now
        if self._read_back_at is not None and now - self._read_back_at >= BEAT_AFTER_S:
            self._beat_due, self._read_back_at = False, None
            yield self._routes.replica_beat("supervisor", SupervisorBeat(self._incarnation))


def _late(watched: Watched, now_ms: int) -> bool:
    """Past its deadline, or past any that intake grants: anybody may write an Accepted."""
    accepted = watched.reply.accepted
    return accepted is not None and now_ms > min(accepted.deadline_ms, watched.accepted_ms + LONGEST_DEADLINE_MS)
