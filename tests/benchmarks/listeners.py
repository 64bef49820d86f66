"""Who hears the tokens: clients of an edge, on plain sockets, and a raw reader of the same topic.

Both note when bytes came and look into them only afterwards, so that what is measured is the way, not the listener.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import cast

import uvloop

from schemas.codec import Codec
from schemas.reply_records import Tokens
from topics.catalog import REPLIES, Sizes
from topics.config import KafkaConfig
from topics.kafka import KafkaLog
from topics.log import Place

PATIENCE_S = 120.0
_TIME = re.compile(rb'data: \{"text":"(\d+)"\}')


class Listener(asyncio.Protocol):
    """One GET of one stream: `heard` are (nanoseconds, bytes) as they came."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.heard: list[tuple[int, bytes]] = []
        self.open = asyncio.Event()
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        self.heard.append((time.monotonic_ns(), data))
        self.open.set()
        if b"0\r\n\r\n" in data[-7:]:
            self.ended.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set()


def listen(port: int, requests: Sequence[bytes], steps: Connection) -> None:
    """Opens a connection for each request, says so, and sends (sent at, heard at) of each token when all have ended."""
    steps.send(uvloop.run(_listen(port, requests, steps)))


async def _listen(port: int, requests: Sequence[bytes], steps: Connection) -> list[tuple[int, int]]:
    loop = asyncio.get_running_loop()
    listeners = [
        (await loop.create_connection(lambda request=request: Listener(request), "127.0.0.1", port))[1]
        for request in requests
    ]
    async with asyncio.timeout(PATIENCE_S):
        for listener in listeners:
            await listener.open.wait()
        steps.send("open")
        for listener in listeners:
            await listener.ended.wait()
    return [times for listener in listeners for times in _times(listener.heard)]


def _times(heard: Sequence[tuple[int, bytes]]) -> list[tuple[int, int]]:
    """The bytes of a chunk may end within a frame: a token is heard with the chunk that completes its line."""
    found: list[tuple[int, int]] = []
    rest = b""
    for at, data in heard:
        *lines, rest = (rest + data).split(b"\n")
        found += [(int(match[1]), at) for line in lines if (match := _TIME.search(line))]
    return found


def read_raw(kafka: str, count: int, steps: Connection) -> None:
    """Reads `replies` from its end on until `count` tokens have come, and sends (sent at, heard at) of each."""
    reader = KafkaLog(KafkaConfig(kafka=kafka)).reader()
    for partition in range(Sizes().replies):
        place = Place(REPLIES, partition)
        reader.add(place, reader.end(place))
    reader.poll(1, 1.0)
    steps.send("open")
    heard: list[tuple[int, bytes | None]] = []
    deadline = time.monotonic() + PATIENCE_S
    codec, times = Codec(), list[tuple[int, int]]()
    while len(times) < count and time.monotonic() < deadline:
        records = reader.poll(10_000, 0.05)
        at = time.monotonic_ns()
        heard += [(at, record.value) for record in records]
        if len(heard) >= count:
            events = ((at, codec.decode(value)) for at, value in heard if value is not None)
            times = [(int(event.texts[0]), at) for at, event in events if isinstance(event, Tokens)]
    reader.close()
    steps.send(times)
