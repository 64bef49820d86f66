"""Router: the backlog of a pool, in tier order, to the replica that has most of a prompt already, as late as it can be.

A replica with much more to do than another, or without room, is passed over for the one that is least full. A request
stays in its `generate` topic until a replica has room for it; the offset that is committed is that of the oldest
request not yet sent, so a restart finds them all again. Past the backlog's limit a request that has not begun is shed
with a time to retry, rather than left to wait out its deadline.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from schemas.events import GenerateAssigned, GenerateRequested, LanePosition, Origin, ReplicaBeat, SupervisorBeat
from schemas.ids import Incarnation, ReplyId
from schemas.prefix import packed_prefix_hashes
from schemas.reply_records import Dispatched, Failed, Shed
from streams.affinity import Affinity
from streams.replicas import Replicas
from streams.stage import NOTHING, Decision, Message, Queue, Snapshot, Stage
from topics.catalog import LARGEST_REQUEST, MINUTE, REPLICAS, SECOND, TIERS, generate_topic
from topics.log import Place, Position
from topics.outputs import Output, Routes

READY = "ready"
LANE_DEPTH = 1
MOST_IMBALANCE = 4
NEVER_SHED = "resume"
LONGEST_RETRY_MS = 2 * MINUTE


@dataclass(slots=True)
class Lanes:
    """What one incarnation was sent and has not read, by tier: counts, which each step of its lane offsets lowers.

    A step back shows that the offset before it was none of its own; it costs no more than a count that is too low.
    """

    incarnation: Incarnation
    unread: Counter[str] = field(default_factory=Counter)
    _offsets: dict[str, int] = field(default_factory=dict)

    @property
    def in_flight(self) -> int:
        return self.unread.total()

    def read(self, lanes: Sequence[LanePosition]) -> None:
        for lane in lanes:
            step = max(0, lane.offset - self._offsets.get(lane.tier, lane.offset))
            self.unread[lane.tier] -= min(step, self.unread[lane.tier])
            self._offsets[lane.tier] = lane.offset


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
        self._replicas = Replicas(routes)
        self._affinity = Affinity()
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
                self._affinity.keep({replica.incarnation for replica in self._replicas.alive(self._pool)})
                return NOTHING
            case GenerateRequested() as request:
                if not self._routes.has(request.reply):
                    raise ValueError(f"{request.reply!r} names no reply of this cell")
                if generate_topic(request.pool, request.tier) != message.place.topic:
                    raise ValueError(f"a request of {request.pool}/{request.tier} in {message.place.topic}")
                if message.size > LARGEST_REQUEST:
                    raise ValueError(f"a request of {message.size} bytes, where a lane takes {LARGEST_REQUEST}")
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
        lanes = self._lanes.setdefault(beat.slot, Lanes(beat.incarnation))
        if lanes.incarnation != beat.incarnation:
            self._affinity.forget(lanes.incarnation)
            lanes = self._lanes[beat.slot] = Lanes(beat.incarnation)
        if beat.state != READY:
            self._affinity.forget(beat.incarnation)
        lanes.read(beat.lanes)

    def _dispatch(self, at_ms: int) -> list[Output]:
        outputs: list[Output] = []
        for place in self._in_tier_order():
            backlog = self._backlog[place]
            while backlog:
                if backlog[0].event.deadline_ms < at_ms:
                    backlog.popleft()  # the supervisor ends it; nobody needs to compute it
                elif replicas := self._with_room():
                    outputs += self._send(backlog[0], replicas)
                    backlog.popleft()
                    self._pace.dispatched(at_ms)
                else:
                    break
        return outputs

    def _with_room(self) -> list[ReplicaBeat]:
        """Those that can take a request, the one with the largest share of its places free first."""
        ready = [beat for beat in self._replicas.alive(self._pool) if beat.state == READY]
        return sorted((beat for beat in ready if self._load(beat) < _places(beat)), key=self._fill)

    def _load(self, beat: ReplicaBeat) -> int:
        return beat.running + beat.waiting + self._lanes[beat.slot].in_flight

    def _fill(self, beat: ReplicaBeat) -> float:
        return self._load(beat) / _places(beat)

    def _choose(self, replicas: Sequence[ReplicaBeat], names: Sequence[bytes]) -> ReplicaBeat:
        """The one that was sent the longest beginning of the prompt, unless others have much less to do for their size;
        else the first."""
        least, of = self._load(replicas[0]), _places(replicas[0])
        eligible = [beat for beat in replicas if (self._load(beat) - MOST_IMBALANCE) * of <= least * _places(beat)]
        best = max(eligible, key=lambda beat: self._affinity.blocks(beat.incarnation, names))
        return best if self._affinity.blocks(best.incarnation, names) else replicas[0]

    def _send(self, message: Message, replicas: Sequence[ReplicaBeat]) -> tuple[Output, Output]:
        request: GenerateRequested = message.event
        names = packed_prefix_hashes(request.prompt + request.accepted, request.account)
        beat = self._choose([beat for beat in replicas if not _gave_up(beat, request.reply)] or replicas, names)
        origin = Origin(message.place.topic, message.place.partition, message.offset)
        dispatched = Dispatched(request.attempt, f"{beat.pool}/{beat.slot}", beat.incarnation, origin)
        assigned = GenerateAssigned(beat.incarnation, origin, request)
        outputs = self._routes.lane(beat.slot, assigned), self._routes.reply(request.reply, dispatched)
        self._lanes[beat.slot].unread[request.tier] += 1
        self._affinity.sent(beat.incarnation, names)
        return outputs

    def _in_tier_order(self) -> list[Place]:
        return sorted(self._backlog, key=lambda place: self.inputs.index(place.topic))

    def snapshot(self) -> Snapshot:
        tiers = dict(zip(self.inputs, TIERS, strict=True))
        queues = {
            tiers[place.topic]: Queue(len(backlog), backlog[0].at_ms if backlog else 0)
            for place, backlog in self._backlog.items()
        }
        return Snapshot(queues, Counter(beat.state for beat in self._replicas.alive(self._pool)), self._pool)

    def assigned(self, place: Place, committed: Position | None) -> int | None:
        self._backlog[place] = deque()
        return None

    def revoked(self, place: Place) -> None:
        self._backlog.pop(place, None)

    def position(self, place: Place, offset: int) -> Position:
        backlog = self._backlog[place]
        return Position(backlog[0].offset if backlog else offset)


def _gave_up(beat: ReplicaBeat, reply: ReplyId) -> bool:
    """Whether it says that it has dropped the reply: it may drop it again for the same reason."""
    return any(drop.reply == reply for drop in beat.dropped)


def _places(beat: ReplicaBeat) -> int:
    """How many requests it may be given at once."""
    return beat.capacity + LANE_DEPTH
