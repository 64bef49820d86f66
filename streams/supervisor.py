"""Supervisor: no reply stays open past its deadline, and no replica works for a reply that it no longer serves.

Its clock is its own beats in `replicas`, read back: time passes for it only as far as the log has moved. It commits
the low-water mark of its table, so a restart folds every open reply again from its first record.
"""

from __future__ import annotations

from collections.abc import Iterator

from schemas import reply_records as r
from schemas.events import AbortReply, SupervisorBeat
from schemas.ids import Incarnation, ReplyId
from schemas.reply import Reply, Verdict
from streams.reply_table import ReplyTable, Watched
from streams.stage import NOTHING, Decision, Message, Stage
from topics.catalog import REPLICAS, REPLIES
from topics.log import Place, Position
from topics.outputs import Output, Routes

UNWANTED = (Verdict.ENDED, Verdict.STALE, Verdict.FOREIGN)


class Supervisor(Stage):
    name = "supervisor"
    inputs = (REPLIES,)
    broadcast = (REPLICAS,)
    keeps_dead_letters = False  # settlement reads the same topic and puts its bad records aside

    def __init__(self, incarnation: Incarnation, routes: Routes) -> None:
        self._incarnation = incarnation
        self._routes = routes
        self._tables: dict[Place, ReplyTable] = {}
        self._beat_due = True

    def apply(self, message: Message) -> Decision:
        if message.place.topic == REPLICAS:
            return self._beat(message)
        change = self._tables[message.place].apply(message)
        event = message.event
        if change.ended and change.watched:
            return Decision(first=tuple(self._abort_all(change.watched.reply)))
        lost = change.watched is None or change.verdict in UNWANTED
        if lost and isinstance(event, r.Dispatched | r.Started) and message.reply:
            return Decision(first=(self._abort(message.reply, event.attempt, event.replica, event.incarnation),))
        return NOTHING

    def _beat(self, message: Message) -> Decision:
        if not isinstance(message.event, SupervisorBeat) or message.event.incarnation != self._incarnation:
            return NOTHING
        self._beat_due = True
        late = [watched for table in self._tables.values() for watched in table.open() if _late(watched, message.at_ms)]
        return Decision(first=tuple(self._routes.reply(watched.reply.id, r.Failed("deadline")) for watched in late))

    def _abort_all(self, reply: Reply) -> Iterator[Output]:
        done = reply.owner if isinstance(reply.end, r.Finished) else None
        for attempt, replica, incarnation in reply.addressees:
            if incarnation != done:
                yield self._abort(reply.id, attempt, replica, incarnation)

    def _abort(self, reply: ReplyId, attempt: int, replica: str, incarnation: Incarnation) -> Output:
        pool, _, slot = replica.rpartition("/")
        return self._routes.command(pool, int(slot), AbortReply(reply, attempt, incarnation))

    def assigned(self, place: Place, committed: Position | None) -> int | None:
        self._tables[place] = ReplyTable()
        return None

    def revoked(self, place: Place) -> None:
        self._tables.pop(place, None)

    def position(self, place: Place, offset: int) -> Position:
        return Position(self._tables[place].low_water(offset))

    def ticks(self) -> Iterator[Output]:
        if self._beat_due:
            self._beat_due = False
            yield self._routes.replica_beat("supervisor", SupervisorBeat(self._incarnation))


def _late(watched: Watched, now_ms: int) -> bool:
    accepted = watched.reply.accepted
    return accepted is not None and now_ms > accepted.deadline_ms
