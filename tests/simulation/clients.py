"""Clients: each asks once, and goes on until it has seen the end - over broken connections, refusals and dead edges.

A client knows what a browser knows: the bytes that came, the last event id in them, and its own key. One that
vanishes tells nobody; it comes back later, or never.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from schemas.events import MessagePosted, Sampling
from schemas.ids import ConversationId, MessageId, ReplyId, UserId
from schemas.reply_records import Stopped
from tests.checker.history import Request, Stream
from tests.checker.sse import parse
from tests.simulation.processes import Role
from tests.simulation.remembering import CODEC
from tests.simulation.world import World
from topics.catalog import REPLIES
from topics.log import Append
from topics.outputs import reply_of_key

if TYPE_CHECKING:
    from tests.simulation.edge import EdgeProcess

END_EVENTS = ("finished", "stopped", "flagged", "shed", "failed")
MOST_REQUESTS = 200
MOST_REFUSALS = 2
LAST_MOMENT = -1
PLAN_OF = {"alice": "paid", "bob": "free"}
STAFF = "staff"


@dataclass(frozen=True)
class Ask:
    """What a client wants: a message, and when. `again_ms`: others post it too, so much later, with the same key.

    `stop_ms`: the user stops the reply so long after its first event. `cuts`: when its connection breaks. `gone_ms`:
    when it vanishes, to come back `back_ms` later, or never; at the LAST_MOMENT: when its reply is given up.
    `branch`: how it goes on from the message of the ask `of`: an `edit` of it, `again` for another answer to it,
    `after` its answer, or from the `root`. `system`: the conversation's system prompt from now on.
    """

    name: str
    user: str
    conversation: str
    text: str
    at_ms: int
    max_tokens: int = 8
    stop: tuple[str, ...] = ()
    deadline_ms: int = 30_000
    again_ms: tuple[int, ...] = ()
    stop_ms: int | None = None
    cuts: tuple[int, ...] = ()
    on_disconnect: str = "grace"
    gone_ms: int | None = None
    back_ms: int | None = None
    branch: str = ""
    of: str = ""
    system: str | None = None

    @property
    def key(self) -> tuple[UserId, ConversationId, str]:
        return UserId(self.user), ConversationId(self.conversation), self.name

    def posted(self, reply: ReplyId, parent: MessageId | None) -> MessagePosted:
        return MessagePosted(
            user=UserId(self.user),
            account="acme",
            plan=PLAN_OF.get(self.user, STAFF),
            conversation=ConversationId(self.conversation),
            reply=reply,
            client_key=self.name,
            body_hash=f"{self.text}/{parent}",
            text="" if self.branch == "again" else self.text,
            model="tiny",
            sampling=Sampling(self.max_tokens, stop=self.stop),
            deadline_ms=self.deadline_ms,
            on_disconnect=self.on_disconnect,
            parent=parent,
            system=self.system,
        )


@dataclass(eq=False)
class Connection:
    """One HTTP request. What the edge sends arrives a little later, cut anywhere."""

    client: Client
    what: str
    answers: list[str] = field(default_factory=list)
    broken: bool = False
    over: bool = False
    reply: ReplyId | None = None
    after: int | None = None
    body: bytearray = field(default_factory=bytearray)
    _coming: bytearray = field(default_factory=bytearray)

    def answer(self, status: int, detail: str) -> bool:
        """True: for a request that is done with it."""
        if not self.broken:
            self.answers.append(f"{status} {detail}")
            self.client.note(f"{self.what}: {status} {detail}")
            if status != 200 or self.what == "stop":
                self.over = True
                self.client.later(lambda: self.client.answered(self, status))
        return True

    def opened(self, reply: ReplyId, after: int | None) -> None:
        self.reply, self.after = reply, after

    def send(self, data: bytes) -> bool:
        if data and not self.broken:
            self._coming += data
            self.client.later(self._arrive)
        return True

    def close(self) -> bool:
        if not self.broken:
            self.over = True
            self.client.later(self._arrive_and_end)
        return True

    def cut(self) -> None:
        """The connection is gone, and with it what had not arrived."""
        if not self.broken and not (self.over and not self._coming):
            self.broken, self.over = True, False
            part = self.client.random.randint(0, len(self._coming))
            self.body += self._coming[:part]
            self._coming.clear()
            self.client.note(f"{self.what}: broken after {len(self.body)} bytes")
            self.client.later(lambda: self.client.lost(self))

    def _arrive(self) -> None:
        if not self.broken:
            part = self.client.random.choice((len(self._coming), self.client.random.randint(0, len(self._coming))))
            self.body += self._coming[:part]
            del self._coming[:part]
            self.client.received(self)

    def _arrive_and_end(self) -> None:
        if not self.broken:
            self.body += self._coming
            self._coming.clear()
            self.client.received(self)
            self.client.answered(self, 200)


class Client:
    """`done` once it has seen the end of its reply, or a refusal, or has vanished for good. `chosen` is the message
    that its own goes on from, None for no particular one.
    """

    def __init__(self, world: World, name: str, ask: Ask, edges: list[Role]) -> None:
        self.world, self.name, self.ask, self._edges = world, name, ask, edges
        self.chosen: MessageId | None = None
        self.question: MessageId | None = None
        self.answer: MessageId | None = None
        self.random = world.random(f"client {name}")
        self.connections: list[Connection] = []
        self.done: str | None = None
        self.reply: ReplyId | None = None
        self._cursor: int | None = None
        self._stop_sent = self._gone = False
        self._visit = self._refusals = 0

    def begin(self) -> None:
        for cut in self.ask.cuts:
            self.world.after(cut, self._cut)
        if self.ask.gone_ms is not None:
            self.world.after(self.ask.gone_ms, self._vanish)
        self._request()

    def note(self, what: str) -> None:
        self.world.note(self.name, what)

    def later(self, call: Callable[[], None]) -> None:
        self.world.after(self.random.randint(1, 6), call)

    def received(self, connection: Connection) -> None:
        """Takes its cursor from the whole events that have come."""
        for event in parse(bytes(connection.body)):
            if event.name == "accepted":
                self.reply = event.data["reply"]
                self.question, self.answer = event.data["user_message"], event.data["assistant_message"]
                self._stop_later()
            if event.id is not None and (self._cursor is None or event.id > self._cursor):
                self._cursor = event.id
            if event.name in END_EVENTS:
                self.done = event.name

    def answered(self, connection: Connection, status: int) -> None:
        if connection.what == "stop":
            if status == 503:
                self._try_again(self._send_stop)
        elif status in (204, 400, 404, 409) or (status == 429 and self._refusals == MOST_REFUSALS):
            self.done = self.done or connection.answers[-1]
        elif self.done is None:
            self._refusals += status == 429
            self._try_again(self._request)

    def lost(self, connection: Connection) -> None:
        if connection.what == "stop":
            self._try_again(self._send_stop)
            return
        self.received(connection)
        if self.done is None:
            self._try_again(self._request)

    def requests(self) -> list[Request]:
        return [Request(self.name, c.what, tuple(c.answers), c.broken and not c.answers) for c in self.connections]

    def streams(self) -> list[Stream]:
        opened = [c for c in self.connections if c.reply is not None]
        return [Stream(self.name, c.reply, c.after, bytes(c.body), c.over) for c in opened if c.reply]

    def _request(self) -> None:
        connection = self._connect("post" if self.reply is None else f"get after {self._cursor}")
        if edge := self._edge(connection):
            if self.reply is None:
                edge.guarded(lambda: edge.post(connection, self.ask, self.chosen))
            else:
                reply, cursor = self.reply, self._cursor
                edge.guarded(lambda: edge.get(connection, UserId(self.ask.user), reply, cursor))
            if not edge.alive:
                connection.cut()

    def _send_stop(self) -> None:
        if self._gone:
            return
        connection = self._connect("stop")
        if (edge := self._edge(connection)) and (reply := self.reply):
            edge.guarded(lambda: edge.stop(connection, UserId(self.ask.user), reply))
            if not edge.alive:
                connection.cut()

    def _stop_later(self) -> None:
        if self.ask.stop_ms is not None and not self._stop_sent:
            self._stop_sent = True
            self.world.after(self.ask.stop_ms, self._send_stop)

    def _connect(self, what: str) -> Connection:
        connection = Connection(self, what)
        self.connections.append(connection)
        return connection

    def _edge(self, connection: Connection) -> EdgeProcess | None:
        """One that takes the connection; None when nobody does."""
        process: EdgeProcess = self.random.choice(self._edges).process  # type: ignore[assignment]
        if not process.alive or process.draining or process in self.world.standing:
            connection.cut()
            return None
        return process

    def _try_again(self, call: Callable[[], None]) -> None:
        visit = self._visit

        def again() -> None:
            if visit == self._visit:
                call()

        if len(self.connections) < MOST_REQUESTS and not self._gone:
            self.world.after(self.random.randint(50, 400), again)

    def _vanish(self) -> None:
        if self.done is None:
            self.note("vanishes")
            self._gone = True
            self._visit += 1
            for connection in self.connections:
                connection.cut()
            if self.ask.back_ms is None or self.ask.back_ms == LAST_MOMENT:
                self.done = "vanished"
            if self.ask.back_ms == LAST_MOMENT:
                self.world.watching.append(self._watch)
            elif self.ask.back_ms is not None:
                self.world.after(self.ask.back_ms, self._come_back)

    def _watch(self, sent: Append) -> None:
        event = CODEC.decode(sent.value) if sent.place.topic == REPLIES else None
        if isinstance(event, Stopped) and event.by == "abandoned" and reply_of_key(sent.key) == self.reply:
            self.world.watching.remove(self._watch)
            self.done = None
            self.later(self._come_back)

    def _come_back(self) -> None:
        self._gone = False
        if self.done is None:
            self.note("comes back")
            self._request()

    def _cut(self) -> None:
        if self.connections and not self.connections[-1].over:
            self.connections[-1].cut()
