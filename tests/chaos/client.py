"""Clients: each posts one message and goes on until it has seen the end, over broken connections and dead edges.

A client knows what a browser knows: the bytes that came, the last event id in them, and its own key. All that it was
answered is kept, byte for byte, for the checker.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from urllib.parse import urlsplit

from schemas.ids import ReplyId
from tests.chaos.plan import Ask, Cut
from tests.checker.history import Request, Stream

SILENCE_S = 8.0
PATIENCE_S = 240.0
ENDS = (b"finished", b"stopped", b"flagged", b"failed", b"shed")
_EVENT = re.compile(rb"^event: (.*)$", re.MULTILINE)
_ID = re.compile(rb"^id: (\d+)$", re.MULTILINE)
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Edges:
    """Where a user's clients go, and who they are there. `first` is the edge that they try first; None: any."""

    urls: Sequence[str]
    key: str
    first: int | None = None


@dataclass(eq=False)
class Heard:
    """The body of one stream as it comes."""

    reply: ReplyId
    after: int | None
    body: bytearray = field(default_factory=bytearray)
    whole: bool = False
    read: int = 0

    def frames(self) -> Iterator[bytes]:
        """Those that have become whole since the last call."""
        while (end := self.body.find(b"\n\n", self.read)) >= 0:
            frame, self.read = bytes(self.body[self.read : end + 1]), end + 2
            yield frame


class Client:
    """`run` it in a thread of its own. `done` is how it ended: the end event, a refusal, or that it left."""

    def __init__(self, name: str, ask: Ask, edges: Edges) -> None:
        self.name, self.ask = name, ask
        self.reply: ReplyId | None = None
        self.cursor: int | None = None
        self.done: str | None = None
        self.state: str | None = None
        self.unread: list[socket.socket] = []
        self.edges, self._random = edges, Random(f"client {name}")
        self._streams: list[Heard] = []
        self._requests: list[Request] = []
        self._cuts = list(ask.cuts)
        self._thread = threading.Thread(target=self.run, name=f"client {name}", daemon=True)

    def start(self) -> Client:
        self._thread.start()
        return self

    def run(self) -> None:
        first, until = self.edges.first, time.monotonic() + PATIENCE_S
        edge = self._random.randrange(len(self.edges.urls)) if first is None else first
        while self.done is None and time.monotonic() < until:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._visit(edge)
            in_vain = self._in_vain()
            if self.done is None:
                edge = self._random.randrange(len(self.edges.urls))
                time.sleep(self._random.uniform(0.05, 0.4) * (1 + min(in_vain, 10)))

    def streams(self) -> list[Stream]:
        return [Stream(self.name, one.reply, one.after, bytes(one.body), one.whole) for one in self._streams]

    def requests(self) -> list[Request]:
        return list(self._requests)

    def close(self) -> None:
        """Lets go of the connections that it left open and unread."""
        while self.unread:
            self.unread.pop().close()

    def _in_vain(self) -> int:
        """How many of its requests in a row were the last that got no answer."""
        return next((n for n, one in enumerate(reversed(self._requests)) if not one.broken), len(self._requests))

    def _visit(self, edge: int) -> None:
        """One request. Raises OSError or HTTPException when the connection is lost."""
        if self.reply is None:
            headers = {"Idempotency-Key": self.ask.name} | ({"Accept": "text/event-stream"} if self.ask.streams else {})
            path = f"/v1/conversations/{self.ask.conversation}/messages"
            with self._asked("post", edge, "POST", path, headers, json.dumps(self.ask.body)) as (connection, answer):
                self._answered(connection, answer, None)
        else:
            path, after = f"/v1/replies/{self.reply}/events", self.cursor
            headers = {} if after is None else {"Last-Event-ID": str(after)}
            with self._asked(f"get after {after}", edge, "GET", path, headers) as (connection, answer):
                self._answered(connection, answer, after)

    @contextlib.contextmanager
    def _asked(
        self, what: str, edge: int, method: str, path: str, headers: dict[str, str], body: str | None = None
    ) -> Iterator[tuple[http.client.HTTPConnection, http.client.HTTPResponse]]:
        """One request and its answer, kept. A connection that is to be left unread stays open."""
        url = urlsplit(self.edges.urls[edge])
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=SILENCE_S)
        answers: tuple[str, ...] = ()
        try:
            given = {"Authorization": f"Bearer {self.edges.key}", "Content-Type": "application/json", **headers}
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            answers = (str(answer.status),)
            yield connection, answer
        finally:
            self._requests.append(Request(self.name, what, answers, broken=not answers))
            if connection.sock is None or connection.sock not in self.unread:
                connection.close()

    def _answered(
        self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, after: int | None
    ) -> None:
        if answer.status == 200:
            heard = Heard(self.reply or ReplyId(answer.headers["X-Request-Id"]), after)
            self.reply = heard.reply
            self._streams.append(heard)
            self._listen(connection, answer, heard)
            return
        body = answer.read()
        if answer.status == 202:
            self.reply = ReplyId(json.loads(body)["reply"])
            time.sleep(self.ask.late_s)
        elif answer.status == 204:
            self.done = "already seen"
        elif answer.status != 503:
            self.done = f"{answer.status} {json.loads(body)['error']['code']}"

    def _listen(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, heard: Heard) -> None:
        while data := answer.read1(65536):
            heard.body += data
            for frame in heard.frames():
                self._take(frame)
            if self.done is None and (cut := self._due_cut()):
                self._cut(connection, cut)
                return
            self._stop_if_due()
        heard.whole = True

    def _take(self, frame: bytes) -> None:
        event, numbered = _EVENT.search(frame), _ID.search(frame)
        if numbered:
            self.cursor = int(numbered[1])
        if event and event[1] in ENDS:
            self.done = event[1].decode()

    def _due_cut(self) -> Cut | None:
        """What ends the connection now, if anything does."""
        seen, leaves = -1 if self.cursor is None else self.cursor, self.ask.leaves_after
        if leaves is not None and seen >= leaves:
            self.done = "left"
            return Cut(leaves, self.ask.leaves_how)
        return self._cuts.pop(0) if self._cuts and seen >= self._cuts[0].after else None

    def _cut(self, connection: http.client.HTTPConnection, cut: Cut) -> None:
        sock = connection.sock
        assert isinstance(sock, socket.socket)
        if cut.how == "silent":
            self.unread.append(sock)
        elif cut.how == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        if cut.how != "silent":
            connection.close()
        time.sleep(cut.away_s)

    def _stop_if_due(self) -> None:
        """At any edge, again with the next event until the log has said what became of it."""
        due = self.ask.stop_after is not None and self.cursor is not None and self.cursor >= self.ask.stop_after
        if due and self.state is None and self.done is None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.stop(self._random.randrange(len(self.edges.urls)))

    def stop(self, edge: int) -> str | None:
        """Asks an edge to stop the reply; the state that it answers. Raises OSError or HTTPException."""
        with self._asked("stop", edge, "POST", f"/v1/replies/{self.reply}/stop", {}) as (_, answer):
            body = answer.read()
            if answer.status == 200:
                self.state = json.loads(body)["state"]
        return self.state


def clients_of(ask: Ask, edges: Edges) -> list[tuple[float, Client]]:
    """The client of an ask and those that post the same again, each with when it begins."""
    first = (ask.at_s, Client(ask.name, ask, edges))
    quiet = replace(ask, stop_after=None, leaves_after=None)
    again = [(ask.at_s + later, Client(f"{ask.name}.again{n}", quiet, edges)) for n, later in enumerate(ask.again_s)]
    return [first, *again]
