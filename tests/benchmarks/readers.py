"""Clients that follow replies to their ends, whatever breaks: on plain sockets, over two edges, cut at given moments.

They note bytes as they come and look into them only where they must, to resume: what is measured is the service.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, cast

import uvloop

ENDS = re.compile(rb"event: (finished|stopped|flagged|failed|shed)\n")
ID = re.compile(rb"\nid: (\d+)\n")
EVENT = re.compile(rb"event: (\w+)\nid: (\d+)\ndata: (.*)\n\n")
LONGEST_END = len(b"event: finished")
PATIENCE_S = 300.0
AGAIN_S = 0.02


class Heard(NamedTuple):
    """An event, when it came, and whether it was the first of its connection."""

    at_ns: int
    number: int
    name: str
    data: dict[str, Any]


class Socket(asyncio.Protocol):
    """One connection: `heard` are (nanoseconds, bytes) as they came."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.opened_ns = time.monotonic_ns()
        self.heard: list[tuple[int, bytes]] = []
        self.over = asyncio.Event()
        self.ended = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        before = self.heard[-1][1][-LONGEST_END:] if self.heard else b""
        self.heard.append((time.monotonic_ns(), data))
        if ENDS.search(before + data):
            self.ended = True
            self.over.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.over.set()

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.heard)


@dataclass
class Reader:
    """One reply's. `cuts` are seconds after its begin; `sockets` are its connections, one after the other."""

    ports: Sequence[int]
    key: str
    reply: str
    cuts: Sequence[float] = ()
    sockets: list[Socket] = field(default_factory=list)

    async def follow(self) -> None:
        began, cuts, edge = time.monotonic(), list(self.cuts), hash(self.reply)
        while time.monotonic() - began < PATIENCE_S:
            edge = random.randrange(1_000) if self.sockets and cuts else edge + 1
            connection = await self._connect(self.ports[edge % len(self.ports)])
            if connection is not None:
                left = began + cuts[0] - time.monotonic() if cuts else None
                try:
                    await asyncio.wait_for(connection.over.wait(), left)
                except TimeoutError:
                    cuts.pop(0)
                connection.transport.abort()
                if connection.ended:
                    return
                continue
            await asyncio.sleep(AGAIN_S)
        raise TimeoutError(f"{self.reply} has no end")

    async def _connect(self, port: int) -> Socket | None:
        cursor = self._cursor()
        resume = "" if cursor is None else f"Last-Event-ID: {cursor}\r\n"
        head = f"GET /v1/replies/{self.reply}/events HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer {self.key}\r\n"
        made = Socket(f"{head}{resume}\r\n".encode())
        try:
            await asyncio.get_running_loop().create_connection(lambda: made, "127.0.0.1", port)
        except OSError:
            return None
        self.sockets.append(made)
        return made

    def _cursor(self) -> int | None:
        for socket in reversed(self.sockets):
            if found := EVENT.findall(socket.body):
                return int(found[-1][1])
        return None

    def heard(self) -> Iterator[Heard]:
        """Every numbered event of every connection, whole, in the order in which they came."""
        for socket in self.sockets:
            ends: list[tuple[int, int]] = []
            length = 0
            for at, data in socket.heard:
                length += len(data)
                ends.append((length, at))
            for match in EVENT.finditer(socket.body):
                at = next(at for end, at in ends if end >= match.end())
                yield Heard(at, int(match[2]), match[1].decode(), json.loads(match[3]))

    def first_event_ms(self) -> list[float]:
        """From the connect to the first event of each resumed connection that had one."""
        resumed = ((socket, EVENT.search(socket.body)) for socket in self.sockets[1:])
        return [(_at(socket, found.end()) - socket.opened_ns) / 1e6 for socket, found in resumed if found]


def _at(socket: Socket, end: int) -> int:
    """When the byte before `end` came."""
    for at, data in socket.heard:
        end -= len(data)
        if end <= 0:
            return at
    raise ValueError("no such byte")


def follow(
    ports: Sequence[int], key: str, replies: Sequence[str], cuts: Sequence[Sequence[float]], steps: Connection
) -> None:
    """Follows all replies, says `reading`, and sends what each heard and how soon it heard it when all have ended."""
    readers = [Reader(ports, key, reply, cut) for reply, cut in zip(replies, cuts, strict=True)]
    uvloop.run(_follow(readers, steps))
    steps.send([(list(reader.heard()), reader.first_event_ms()) for reader in readers])


async def _follow(readers: Sequence[Reader], steps: Connection) -> None:
    following = [asyncio.create_task(reader.follow()) for reader in readers]
    while not all(any(socket.heard for socket in reader.sockets) for reader in readers):
        await asyncio.sleep(0.01)
    steps.send("reading")
    await asyncio.gather(*following)
