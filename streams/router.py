"""Router: the backlog of a pool, in tier order, to the replica with the most room, as late as it can be.

A request stays in its `generate` topic until a replica has room for it; the offset that is committed is that of the
oldest request not yet sent, so a restart finds them all again. Past the backlog's limit a request that has not begun
is shed with a time to retry, rather than left to wait out its deadline.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from schemas.events import GenerateAssigned, GenerateRequested, Origin, ReplicaBeat, SupervisorBeat
from schemas.ids import Incarnation, ReplyId
from schemas.reply_records import Dispatched, Failed, Shed
from streams.replicas import Replicas
from streams.stage import NOTHING, Decision, Message, Queue, Snapshot, Stage
from topics.catalog import MINUTE, REPLICAS, SECOND, TIERS, generate_topic
from topics.log import Place, Position
from topics.outputs import Output, Routes

LANE_DEPTH = 1
NEVER_SHED = "resume"
LONGEST_RETRY_MS = 2 * MINUTE


@dataclass(slots=True)
class Lanes:
    """What was sent to one incarnation, as lane offsets, against what it says it has read."""

    incarnation: Incarnation
    sent: dict[str, int] = field(default_factory=dict)

    def in_flight(self, beat: ReplicaBeat) -> int:
        return sum(max(0, self.sent.get(lane.tier, 0) - lane.offset) for lane in beat.lanes)


@dataclass(slots=True)
class Pace:
    """How fast the backlog drains: mean log time between two dispatches, in milliseconds."""

    last_ms: int = 0
    mean_ms: float = SECOND

    def dispatched(self, at_ms: int) -> None:
        if self.last_ms:
            self.mean_ms += (max(0, at_ms - self.last_ms) - self.mean_ms) / 8
        self.last_ms = at_ms

    def retry_after_ms(self, waiting: int) -> int:
        return int(min(LONGEST_RETRY_MS, max(SECOND, waiting * self.mean_ms)))


class Router(Stage):
    name = "router"
    broadcast = (REPLICAS,)

    def __init__(self, pool: str, backlog_limit: int, routes: Routes) -> None:
        self.name = f"router.{pool}"
        self.inputs = tuple(generate_topic(pool, tier) for tier in TIERS)
        self._pool = pool
        self._limit = backlog_limit
        self._routes = routes
        self._replicas = Replicas()
        self._lanes: dict[int, Lanes] = {}
        self._backlog: dict[Place, deque[Message]] = {}
        self._pace = Pace()

    def apply(self, message: Message) -> Decision:
        match message.event:
            case ReplicaBeat() as beat:
                if not self._replicas.apply(beat):
                    return NOTHING
                self._see(beat)
            case SupervisorBeat() as beat:
                self._replicas.apply(beat)
                return NOTHING
            case GenerateRequested() as request:
                if not self._routes.has(request.reply):
                    raise ValueError(f"{request.reply!r} names no reply of this cell")
                if generate_topic(request.pool, request.tier) != message.place.topic:
                    raise ValueError(f"a request of {request.pool}/{request.tier} in {message.place.topic}")
                backlog = self._backlog[message.place]
                if len(backlog) >= self._limit and request.tier != NEVER_SHED:
                    shed = Shed("capacity", self._pace.retry_after_ms(len(backlog)))
                    return Decision(first=(self._routes.reply(request.reply, shed),))
                backlog.append(message)
            case _:
                return NOTHING
        return Decision(first=tuple(self._dispatch(message.at_ms)))

    def refused(self, message: Message) -> Decision:
        reply = ReplyId((message.key or b"").decode("ascii", "replace"))
        return Decision(first=(self._routes.reply(reply, Failed("internal")),)) if self._routes.has(reply) else NOTHING

    def _see(self, beat: ReplicaBeat) -> None:
        if beat.pool != self._pool:
            return
        lanes = self._lanes.get(beat.slot)
        if lanes is None or lanes.incarnation != beat.incarnation:
            lanes = self._lanes[beat.slot] = Lanes(beat.incarnation)
        for lane in beat.lanes:
            lanes.sent[lane.tier] = max(lanes.sent.get(lane.tier, 0), lane.offset)

    def _dispatch(self, at_ms: int) -> list[Output]:
        outputs: list[Output] = []
        for place in self._in_tier_order():
            backlog = self._backlog[place]
            while backlog:
                if backlog[0].event.deadline_ms < at_ms:
                    backlog.popleft()  # the supervisor ends it; nobody needs to compute it
                elif replica := self._roomiest():
                    outputs += self._send(backlog.popleft(), replica)
                    self._pace.dispatched(at_ms)
                else:
                    break
        return outputs

    def _roomiest(self) -> ReplicaBeat | None:
        beats = [beat for beat in self._replicas.alive(self._pool) if beat.state == "ready"]
        best = max(beats, key=self._room, default=None)
        return best if best is not None and self._room(best) > 0 else None

    def _room(self, beat: ReplicaBeat) -> int:
        lanes = self._lanes[beat.slot]
        return beat.capacity + LANE_DEPTH - beat.running - beat.waiting - lanes.in_flight(beat)

    def _send(self, message: Message, beat: ReplicaBeat) -> tuple[Output, Output]:
        request: GenerateRequested = message.event
        sent = self._lanes[beat.slot].sent
        sent[request.tier] = sent.get(request.tier, 0) + 1
        origin = Origin(message.place.topic, message.place.partition, message.offset)
        dispatched = Dispatched(request.attempt, f"{beat.pool}/{beat.slot}", beat.incarnation, origin)
        assigned = GenerateAssigned(beat.incarnation, origin, request)
        return self._routes.lane(beat.slot, assigned), self._routes.reply(request.reply, dispatched)

    def _in_tier_order(self) -> list[Place]:
        return sorted(self._backlog, key=lambda place: self.inputs.index(place.topic))

    def snapshot(self) -> Snapshot:
        tiers = dict(zip(self.inputs, TIERS, strict=True))
        queues = {
            tiers[place.topic]: Queue(len(backlog), backlog[0].at_ms if backlog else 0)
            for place, backlog in self._backlog.items()
        }
        return Snapshot(queues, Counter(beat.state for beat in self._replicas.alive(self._pool)))

    def assigned(self, place: Place, committed: Position | None) -> int | None:
        self._backlog[place] = deque()
        return None

    def revoked(self, place: Place) -> None:
        self._backlog.pop(place, None)

    def position(self, place: Place, offset: int) -> Position:
        backlog = self._backlog[place]
        return Position(backlog[0].offset if backlog else offset)
