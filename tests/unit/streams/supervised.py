"""A supervisor driven by hand, with its beats, and what its edges and replicas say."""

from __future__ import annotations

from schemas.events import AbortReply, EdgeBeat, SupervisorBeat
from schemas.ids import Incarnation, ReplyId
from streams.replicas import BEAT_AFTER_S
from streams.snapshots import WatchedPartition
from streams.stage import Decision
from streams.supervisor import Patience, Supervisor
from tests.unit.streams.staged import (
    ONE,
    REPLY_LOG,
    ROUTES,
    T0,
    Driven,
    accepted,
    beat,
    dispatched,
    joined,
    reply_id,
    started,
    tokens,
)
from topics.catalog import EDGES, commands_topic
from topics.log import Place, Position
from topics.outputs import Output

ME, OTHER = Incarnation("me"), Incarnation("other")
R1 = reply_id(1)
EDGE_BEATS = Place(EDGES, 0)
ABANDONED_BEATS, STRANDED_BEATS = 8, 6
PATIENCE = Patience(abandoned_s=ABANDONED_BEATS * BEAT_AFTER_S, stranded_s=STRANDED_BEATS * BEAT_AFTER_S)


class Supervised(Driven):
    def __init__(self, me: Incarnation = ME) -> None:
        self.supervisor = Supervisor(me, ROUTES, PATIENCE)
        super().__init__(self.supervisor, REPLY_LOG)
        self.me = me
        self.changelog: dict[str, Output] = {}

    def beats(self, count: int = 1, by: Incarnation | None = None, at_ms: int = T0) -> Decision:
        """As a supervisor sends them: to edges and to replicas."""
        beat, found = SupervisorBeat(by or self.me), []
        for _ in range(count):
            self(EDGE_BEATS, beat, at_ms)
            found.append(self.beat(beat, at_ms))
        return joined(found)

    def edge(self, *edges: str) -> None:
        for edge in edges:
            self(EDGE_BEATS, EdgeBeat(Incarnation(edge), 0))

    @property
    def partition(self) -> WatchedPartition:
        return self.supervisor._partitions[REPLY_LOG]

    @property
    def position(self) -> Position:
        """What is committed now."""
        return self.stage.position(REPLY_LOG, self._next[REPLY_LOG])

    def snapshot(self) -> list[Output]:
        """What a commit writes now to the changelog."""
        assert self.position
        written = list(self.stage.changes())
        self.changelog |= {output.key: output for output in written}
        return written

    def take_over(self, position: Position, changelog: list[Output]) -> None:
        """What the changelog holds, and the position that was committed with it."""
        self.stage.revoked(REPLY_LOG)
        self.stage.assigned(REPLY_LOG, position)
        for output in changelog:
            self.stage.restore(REPLY_LOG, output.key.encode(), output.event)
        self.stage.restored(REPLY_LOG)
        self.stage.caught_up(REPLY_LOG)
        self._next[REPLY_LOG] = position.offset

    def running(self, reply: ReplyId = R1) -> None:
        """A reply with two tokens at a replica that is alive."""
        self.beat(beat(ONE))
        self.reply(reply, accepted(reply), dispatched(), started(), tokens(1, "ab"))


def aborted(decision: Decision) -> set[tuple[int, Incarnation]]:
    """(attempt, incarnation) of every abort, each at its replica's slot."""
    found = [o for o in decision.first if isinstance(o.event, AbortReply)]
    assert all(o.place == (commands_topic("main"), 0) for o in found)
    return {(o.event.attempt, o.event.incarnation) for o in found}


def restarted(before: Supervised) -> Supervised:
    """Another supervisor, from the snapshot that this one makes now."""
    before.partition.snapshot_due = True
    before.snapshot()
    after = Supervised(OTHER)
    after.take_over(before.position, list(before.changelog.values()))
    after.log = {place: list(messages) for place, messages in before.log.items()}
    return after
