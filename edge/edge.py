"""One running edge: the clients it holds and the little state that its routes share. Belongs to the loop's thread."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from starlette.requests import Request
from uuid_utils import uuid7

from edge.access import Access
from edge.auth import Caller
from edge.config import EdgeConfig
from edge.errors import NotNow
from edge.metrics import Metrics
from edge.pulse import Pulse
from edge.room import Room
from edge.tails import SharedView, Tails
from edge.turns import Turns
from edge.view import ReplyView
from edge.writer import Writer
from schemas.codec import Codec
from schemas.events import EdgeBeat
from schemas.ids import ForgedReplyId, Incarnation, ReplyId, created_ms, mint_reply_id, read_reply_id
from schemas.reply_records import ListenerAttached, ListenerDetached
from topics.catalog import SECOND, Sizes
from topics.errors import TopicsError
from topics.kafka_errors import Sparsely
from topics.log import Log
from topics.outputs import Routes
from topics.store.contract import Store
from topics.store.progress import Progress
from topics.telemetry.logs import about
from topics.telemetry.trace import Spans
from topics.telemetry.watched import WatchedEncoder

T = TypeVar("T")

logger = logging.getLogger(__name__)
logger.addFilter(Sparsely())

BEAT_EVERY_S = 0.5
DELIVERY_TIMEOUT_S = 10.0
CATCH_UP_S = 30.0
FRESH_MS = 20 * SECOND
FRESH_WAIT_S = 10.0


class Listener(NamedTuple):
    """Who listens, as the reply log names it."""

    edge: str
    stream: str


@dataclass(frozen=True)
class Surroundings:
    """What an edge is put into; `now_ms` gives the time since 1970."""

    log: Log
    store: Store
    sizes: Sizes
    codec: Codec
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    spans: Spans | None = None


class Edge:
    """Make it on the loop, with `tails` made before off the loop; then `start`."""

    def __init__(
        self, config: EdgeConfig, around: Surroundings, access: Access, metrics: Metrics, tails: Tails
    ) -> None:
        self.config, self.access, self.metrics, self.tails = config, access, metrics, tails
        self.store, self.progress, self.now_ms = around.store, Progress(around.log, around.store), around.now_ms
        self.incarnation = Incarnation(f"edge-{uuid7().hex}")
        self.routes = Routes(around.sizes)
        self.writer = Writer(
            around.log.producer(DELIVERY_TIMEOUT_S),
            WatchedEncoder(around.codec, around.sizes, self.incarnation, metrics.wrote, around.spans),
        )
        metrics.follow(self.missing, lambda: self.writer.working is not False)
        self.bodies, self.turns = Room(), Turns()
        self.streams = 0
        self.pulse = Pulse(config.keep_alive, config.send_timeout)
        self.leaving = self.draining = False
        self.hurried = asyncio.Event()
        self._cell_key = config.cell_key_bytes()
        self._replies = around.sizes.replies
        self._homes = itertools.cycle(config.home(around.sizes.replies))
        self._beats: asyncio.Task[None] | None = None
        self._tail_failed = False

    def start(self, failed: Callable[[BaseException], None]) -> None:
        """`failed` is called when the reply log can no longer be read at all."""

        def lost(error: BaseException) -> None:
            self._tail_failed = True
            failed(error)

        self.tails.start(lost)
        self._beats = asyncio.create_task(self._beat())

    async def stop(self) -> None:
        if self._beats:
            self._beats.cancel()
        await asyncio.to_thread(self.tails.stop)
        self.tails.close()
        self.writer.close()

    async def drain(self) -> None:
        """Stops being ready; later, or at once when `hurried`, ends every stream: clients come back to another edge."""
        self.leaving = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.drain):
                await self.hurried.wait()
        self.draining = True
        self.tails.ring_all()

    def mint(self) -> ReplyId:
        """A fresh reply id in the next home partition."""
        return mint_reply_id(self.config.cell, next(self._homes), uuid7().hex, self._cell_key)

    def genuine(self, text: str) -> ReplyId | None:
        """The reply id in a path; None when no edge of this cell can have minted it."""
        try:
            address = read_reply_id(text, self._cell_key)
        except ForgedReplyId:
            return None
        ours = address.cell == self.config.cell and address.partition < self._replies
        return ReplyId(text) if ours else None

    async def look_up(self, shared: SharedView) -> bool:
        """Whether the log shows the reply; one that is too young to be there yet is waited for. Raises NotNow."""
        view = shared.view
        if not await shared.until(lambda: view.seen or shared.live, CATCH_UP_S):
            raise NotNow("the reply log cannot be read in time", retry_after_s=1)
        if not view.seen and self.now_ms() - created_ms(view.reply.id) < FRESH_MS:
            await shared.until(lambda: view.seen, FRESH_WAIT_S)
        return view.seen

    @contextlib.contextmanager
    def listening(self, view: ReplyView) -> Iterator[Listener]:
        """Tells the log that a client listens, and that it has gone; an ended reply needs no listener."""
        reply, listener, open_reply = view.reply.id, Listener(self.incarnation, uuid7().hex), not view.ended
        if open_reply:
            self.writer.tell(self.routes.reply(reply, ListenerAttached(*listener)))
        try:
            yield listener
        finally:
            if open_reply:
                self.writer.tell(self.routes.reply(reply, ListenerDetached(*listener)))

    async def stored(self, question: Callable[[Store], T]) -> T:
        """The store's answer, waited for in a thread. Raises NotNow."""
        try:
            return await asyncio.to_thread(question, self.store)
        except TopicsError as error:
            logger.error("store: what is saved cannot be read", extra=about(error=error))
            raise NotNow("saved conversations cannot be read now", retry_after_s=1) from error

    def draw_seed(self) -> int:
        return secrets.randbits(63)

    def missing(self) -> list[str]:
        """What keeps this edge from being ready."""
        return [
            name
            for name, is_missing in (
                ("tail: the reply log cannot be read", self._tail_failed),
                ("kafka: nothing is acknowledged", not self.writer.working),
                ("draining", self.leaving),
            )
            if is_missing
        ]

    async def _beat(self) -> None:
        """Says that this edge lives, and wakes the streams when keys have changed."""
        known = self.access.version
        while True:
            if known != (known := self.access.version):
                self.tails.ring_all()
            beat = self.routes.edge_beat(self.incarnation, EdgeBeat(self.incarnation, self.streams))
            self.writer.tell(beat)
            await asyncio.sleep(BEAT_EVERY_S)


def edge_of(request: Request) -> Edge:
    edge = request.app.state.edge
    assert isinstance(edge, Edge)
    return edge


def caller_of(request: Request) -> Caller:
    """Raises Unauthorized or Forbidden."""
    return edge_of(request).access.admit(request).caller
