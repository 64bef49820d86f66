"""Clients: each asks once, and goes on until it has seen the end - over broken connections, refusals and dead edges.

A client knows what a browser knows: the bytes that came, the last event id in them, and its own key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from schemas.events import MessagePosted, Sampling
from schemas.ids import ConversationId, ReplyId, UserId
from tests.checker.history import Request, Stream
from tests.checker.sse import parse
from tests.simulation.processes import Role
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.edge import EdgeProcess

END_EVENTS = ("finished", "stopped", "flagged", "shed", "failed")
MOST_REQUESTS = 60


@dataclass(frozen=True)
class Ask:
    """What a client wants: a message, and when. `again_ms`: others post it too, so much later, with the same key.

    `stop_ms`: the user stops the reply so long after its first event. `cuts`: when its connection breaks.
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

    @property
    def key(self) -> tuple[UserId, ConversationId, str]:
        return UserId(self.user), ConversationId(self.conversation), self.name

    def posted(self, reply: ReplyId) -> MessagePosted:
        return MessagePosted(
            user=UserId(self.user),
            account="acme",
            plan="paid" if self.user == "alice" else "free",
            conversation=ConversationId(self.conversation),
            reply=reply,
            client_key=self.name,
            body_hash=self.text,
            text=self.text,
            model="tiny",
            sampling=Sampling(self.max_tokens, stop=self.stop),
            deadline_ms=self.deadline_ms,
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
    """`done` once it has seen the end of its reply, or a refusal."""

    def __init__(self, world: World, name: str, ask: Ask, edges: list[Role]) -> None:
        self.world, self.name, self.ask, self._edges = world, name, ask, edges
        self.random = world.random(f"client {name}")
        self.connections: list[Connection] = []
        self.done: str | None = None
        self.reply: ReplyId | None = None
        self._cursor: int | None = None
        self._stop_sent = False

    def begin(self) -> None:
        for cut in self.ask.cuts:
            self.world.after(cut, self._cut)
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
                self._stop_later()
            if event.id is not None and (self._cursor is None or event.id > self._cursor):
                self._cursor = event.id
            if event.name in END_EVENTS:
                self.done = event.name

    def answered(self, connection: Connection, status: int) -> None:
        if connection.what == "stop":
            if status == 503:
                self._try_again(self._send_stop)
        elif status in (204, 400, 404, 409):
            self.done = self.done or connection.answers[-1]
        elif self.done is None:
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
                edge.guarded(lambda: edge.post(connection, self.ask))
            else:
                reply, cursor = self.reply, self._cursor
                edge.guarded(lambda: edge.get(connection, UserId(self.ask.user), reply, cursor))
            if not edge.alive:
                connection.cut()

    def _send_stop(self) -> None:
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
        if len(self.connections) < MOST_REQUESTS:
            self.world.after(self.random.randint(50, 400), call)

    def _cut(self) -> None:
        if self.connections and not self.connections[-1].over:
            self.connections[-1].cut()
