"""An edge without HTTP and asyncio: what `edge/` does between a request and its bytes, step by step on virtual time.

The tail, the view, the frames, the ids and the routes are the product's. What stands here in place of asyncio is the
order of `edge/messages.py`, `edge/replies.py` and `edge/sse.py`: follow, then send; wait for the log's word; walk
through the frames. An edge that dies breaks its connections; one that drains says `retry` and ends them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edge.edge import BEAT_EVERY_S, FRESH_MS, FRESH_WAIT_S
from edge.frames import retry_frame
from edge.sse import RETRY_MS
from edge.view import ReplyView
from schemas.events import ConversationDeleted, ConversationRenamed, EdgeBeat, MessagePosted
from schemas.ids import Incarnation, MessageId, ReplyId, UserId, created_ms, mint_reply_id
from schemas.quota_records import LimitSet, UsageAsked
from schemas.reply_records import ListenerAttached, ListenerDetached, Redirected, Rejected, Stopped
from tests.simulation.clients import PLAN_OF, Ask, Connection
from tests.simulation.processes import Process, Role
from tests.simulation.sim_log import SimLog
from tests.simulation.surroundings import CODEC, PARTITIONS, Surroundings
from topics.log import Producer
from topics.outputs import Encoder, Output
from topics.subscription import Delivery, Subscription
from topics.tail import Tail

CELL_KEY = b"simulation"
ACCEPT_MS = 10_000
STATUS = {"conversation_busy": 409, "conversation_deleted": 409, "history_unavailable": 503, "quota": 429}


@dataclass(eq=False)
class Seen:
    """A view that requests share; `live` when all of the log's past is in it."""

    view: ReplyView
    subscription: Subscription
    live: bool
    readers: int = 0


@dataclass(eq=False)
class Work:
    """One request on its way. `go` is asked at every step, and answers whether it is done."""

    connection: Connection
    go: Callable[[], bool]
    seen: list[Seen] = field(default_factory=list)
    since_ms: int = 0
    at: int | None = None
    listening: bool = False
    stream: str = ""


class EdgeProcess(Process):
    pace_ms = 5, 60

    def __init__(self, around: Surroundings, role: Role, name: str) -> None:
        super().__init__(role, name)
        self._around = around
        self._views: dict[ReplyId, Seen] = {}
        self._work: list[Work] = []
        self._minted = self._begun = self.silent_until = 0
        self.draining = self._reading_past = self._reading_live = False
        self.left_behind.append(self._break_all)
        self._tail: Tail
        self._producer: Producer
        self._encoder: Encoder

    @property
    def held(self) -> dict[str, int]:
        """What would be lost by leaving now."""
        subscriptions = sum(map(len, self._tail._subscriptions.values()))
        return {"requests": len(self._work), "views": len(self._views), "subscriptions": subscriptions}

    def start(self) -> None:
        log = SimLog(self._around.log, self)
        self._tail = Tail(log, self._deliver, range(PARTITIONS))
        self._producer = log.producer()
        self._encoder = self._around.encoder(Incarnation(self.name))
        self.world.after(0, self._beat_in_turn, self)

    def step(self) -> bool:
        self._follow_live()
        self._catch_up()
        self._producer.poll()
        for work in list(self._work):
            if work.connection.broken or work.go():
                self._end(work)
        if self.draining and not self._work:
            self.die("leaves")
        return any(map(self._has_more, self._work))

    def call(self, what: str) -> None:
        """The tail's two threads: while one reads, the other may go on."""
        super().call(what)
        if what == "read" and self.random.random() < 0.2:
            self._catch_up() if self._reading_live else self._follow_live()

    def _has_more(self, work: Work) -> bool:
        """To read or to send, so that it does not wait to be woken."""
        seen = work.seen[-1]
        return not seen.live or (work.at is not None and work.at < len(seen.view.frames))

    def _follow_live(self) -> None:
        if not self._reading_live:
            self._reading_live = True
            self._tail.follow_live(0.0)
            self._reading_live = False

    def _catch_up(self) -> None:
        if not self._reading_past:
            self._reading_past = True
            self._tail.catch_up(0.0)
            self._reading_past = False

    def _beat_in_turn(self) -> None:
        if self.alive:
            self.guarded(self._beat)
            self.world.after(int(BEAT_EVERY_S * 1000), self._beat_in_turn, self)

    def _beat(self) -> None:
        if self.world.now_ms >= self.silent_until:
            streams = sum(work.listening for work in self._work)
            self._send(self._around.routes.edge_beat(self._incarnation, EdgeBeat(self._incarnation, streams)))

    def post(self, connection: Connection, ask: Ask, parent: MessageId | None) -> None:
        reply = self._mint()
        seen = self._views[reply] = Seen(ReplyView(reply), self._tail.follow(reply), live=True)
        failures: list[Exception] = []
        posted = ask.posted(reply, parent)
        self._send(self._around.routes.message(posted.user, posted), failures)
        work = self._begin(connection, lambda: self._decided(work, seen, posted, failures), seen)

    def get(self, connection: Connection, user: UserId, reply: ReplyId, cursor: int | None) -> None:
        seen = self._reading(reply)
        work = self._begin(connection, lambda: self._found(work, seen, user, cursor), seen)

    def stop(self, connection: Connection, user: UserId, reply: ReplyId) -> None:
        seen = self._reading(reply)
        work = self._begin(connection, lambda: self._stopping(work, seen), seen)

    def change(self, changed: ConversationDeleted | ConversationRenamed | LimitSet) -> None:
        self._send(self._around.routes.message(changed.user, changed))

    def ask_usage(self, user: UserId) -> None:
        self._send(self._around.routes.message(user, UsageAsked(user, self._mint(), PLAN_OF[user])))

    def drain(self) -> None:
        self.draining = True
        self.wake(1)

    def _decided(self, work: Work, seen: Seen, posted: MessagePosted, failures: list[Exception]) -> bool:
        match seen.view.reply.end:
            case Rejected(reason=reason):
                return work.connection.answer(STATUS.get(reason, 400), reason)
            case Redirected(to=target):
                self._join(work, target, posted.user)
                return False
        if seen.view.seen:
            work.go = lambda: self._stream(work, seen, None)
            return work.go()
        if failures or self.world.now_ms - work.since_ms > ACCEPT_MS:
            return work.connection.answer(503, "not decided")
        return False

    def _join(self, work: Work, target: ReplyId, user: UserId) -> None:
        """A repeat is answered with the first reply, as if that had been asked for."""
        seen = self._reading(target)
        seen.readers += 1
        work.seen.append(seen)
        work.since_ms = self.world.now_ms
        work.go = lambda: self._found(work, seen, user, None, unknown=503)

    def _found(self, work: Work, seen: Seen, user: UserId, cursor: int | None, unknown: int = 404) -> bool:
        """Streams once the log shows the reply; one that is too young to be there yet is waited for."""
        if seen.view.seen:
            if seen.view.owner != user:
                return work.connection.answer(404, "another's")
            work.go = lambda: self._stream(work, seen, cursor)
            return work.go()
        fresh = self.world.now_ms - created_ms(seen.view.reply.id) < FRESH_MS
        if seen.live and not (fresh and self.world.now_ms - work.since_ms < FRESH_WAIT_S * 1000):
            return work.connection.answer(unknown, "unknown")
        return False

    def _stream(self, work: Work, seen: Seen, cursor: int | None) -> bool:
        view, after = seen.view, -1 if cursor is None else cursor
        if work.at is None:
            if view.ended and after == view.newest_id:
                return work.connection.answer(204, "seen to the end")
            if after > view.newest_id:
                return (view.ended or self.draining) and work.connection.answer(400 if view.ended else 503, "cursor")
            work.at = view.index_after(cursor)
            work.connection.answer(200, view.reply.id)
            work.connection.opened(view.reply.id, cursor)
            if not view.ended:
                work.listening = True
                self._send(self._around.routes.reply(view.reply.id, ListenerAttached(self._incarnation, work.stream)))
        frames = view.frames[work.at : work.at + self.random.choice((1, 2, 256))]
        work.at += len(frames)
        work.connection.send(b"".join(frames))
        if view.ended and work.at == len(view.frames):
            return work.connection.close()
        return self.draining and work.connection.send(retry_frame(RETRY_MS)) and work.connection.close()

    def _stopping(self, work: Work, seen: Seen) -> bool:
        if not seen.live:
            return False
        if not seen.view.seen:
            return work.connection.answer(404, "unknown")
        if seen.view.ended:
            return work.connection.answer(200, seen.view.reply.state.value)
        if work.at is None:
            work.at = 0
            self._send(self._around.routes.reply(seen.view.reply.id, Stopped(by="user")))
        return self.world.now_ms - work.since_ms > ACCEPT_MS and work.connection.answer(503, "no end yet")

    def _begin(self, connection: Connection, go: Callable[[], bool], seen: Seen) -> Work:
        self._begun += 1
        work = Work(connection, go, [seen], self.world.now_ms, stream=f"{self.name}/{self._begun}")
        seen.readers += 1
        self._work.append(work)
        self.wake(1)
        return work

    def _end(self, work: Work) -> None:
        self._work.remove(work)
        if work.listening:
            reply = work.seen[-1].view.reply.id
            self._send(self._around.routes.reply(reply, ListenerDetached(self._incarnation, work.stream)))
        for seen in work.seen:
            seen.readers -= 1
            if not seen.readers:
                del self._views[seen.view.reply.id]
                self._tail.close(seen.subscription)

    def _mint(self) -> ReplyId:
        seed = f"{self.name}/{self._minted}"
        self._minted += 1
        uuid = f"{self.world.now_ms:012x}{self.world.random(seed).getrandbits(80):020x}"
        return mint_reply_id(0, self.random.randrange(PARTITIONS), uuid, CELL_KEY)

    @property
    def _incarnation(self) -> Incarnation:
        return Incarnation(self.name)

    def _reading(self, reply: ReplyId) -> Seen:
        if reply not in self._views:
            self._views[reply] = Seen(ReplyView(reply), self._tail.open(reply), live=False)
        return self._views[reply]

    def _send(self, output: Output, failures: list[Exception] | None = None) -> None:
        def delivered(failure: Exception | None) -> None:
            if failure is not None and failures is not None:
                failures.append(failure)

        self._producer.send(self._encoder.append(output), delivered)

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            seen = self._views.get(delivery.subscription.reply)
            if seen is None or seen.subscription is not delivery.subscription:
                continue
            for record in delivery.records:
                seen.view.apply(record.offset, CODEC.decode(record.value))
            seen.live = seen.live or delivery.live
            if delivery.failure is not None:
                self.world.raised.append(f"{self.name}: {delivery.failure!r}")

    def _break_all(self) -> None:
        for work in self._work:
            work.connection.cut()
        self._work.clear()
