"""The reply log for asyncio: reply ids in, shared views that grow as the log does.

`topics.tail` reads on its own threads and hands records over; everything else here belongs to the loop's thread. All
readers of a reply share one view. It outlives them for a while, so that the GET after a 202 and a reconnect find it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import cast

from edge.errors import NotNow
from edge.pace import Pace
from edge.view import ReplyView
from schemas.codec import CodecError
from schemas.ids import ReplyId
from schemas.reply import MOVES
from schemas.reply import Record as ReplyRecord
from topics.errors import TopicsError
from topics.log import Log, Record
from topics.outputs import reply_of_key
from topics.schemas import Decoder
from topics.subscription import Delivery, Subscription
from topics.tail import Tail
from topics.telemetry.logs import about

logger = logging.getLogger(__name__)

LINGER_S = 30.0
MOST_IDLE = 512


class SharedView:
    """A view, its place in the tail, and those who wait for it to change. `live`: the log's past is all in it."""

    def __init__(self, subscription: Subscription) -> None:
        self.view = ReplyView(subscription.reply)
        self.subscription = subscription
        self.live = subscription.live
        self.failure: TopicsError | None = None
        self.pace: Pace | None = None
        self.readers = 0
        self.bells: set[asyncio.Event] = set()

    def ring(self) -> None:
        for bell in self.bells:
            bell.set()

    @contextlib.contextmanager
    def bell(self) -> Iterator[asyncio.Event]:
        """An event that is set at every change of the view."""
        bell = asyncio.Event()
        self.bells.add(bell)
        try:
            yield bell
        finally:
            self.bells.discard(bell)

    async def until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Waits until it holds; False when time is up. Raises NotNow when the log cannot be read."""
        with self.bell() as bell, contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not holds():
                    self.check()
                    bell.clear()
                    await bell.wait()
        return holds()

    def check(self) -> None:
        """Raises NotNow when the log cannot be read."""
        if self.failure is not None:
            raise NotNow("the reply log cannot be read now", retry_after_s=1) from self.failure


class Tails:
    """All views of an edge. `skipped` is called, on any thread, for each record of a reply that is not understood."""

    def __init__(
        self,
        log: Log,
        home: Collection[int],
        decoder: Decoder,
        skipped: Callable[[], None],
        paced: Callable[[], Pace] | None = None,
    ) -> None:
        """`paced` measures the replies whose messages were taken here."""
        self._decoder, self._skipped, self._paced = decoder, skipped, paced
        self._views: dict[ReplyId, SharedView] = {}
        self._idle: OrderedDict[ReplyId, asyncio.TimerHandle] = OrderedDict()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tail = Tail(log, self._deliver, home)

    def start(self, failed: Callable[[BaseException], None]) -> None:
        """Call on the loop; `failed` is called on it when the log can no longer be read at all."""
        loop = self._loop = asyncio.get_running_loop()
        self._tail.start(lambda error: _hand_over(loop, failed, error))

    def stop(self) -> None:
        """Waits for the tail's threads: call it off the loop, while the loop runs."""
        self._tail.stop()

    @contextlib.contextmanager
    def following(self, reply: ReplyId) -> Iterator[SharedView]:
        """The view of a reply that was minted just now in a home partition."""
        shared = self._views[reply] = SharedView(self._tail.follow(reply))
        shared.pace = self._paced() if self._paced else None
        with self.held(shared):
            yield shared

    @contextlib.contextmanager
    def reading(self, reply: ReplyId) -> Iterator[SharedView]:
        """The view of any reply; wait `until` it is seen or live."""
        shared = self._views.get(reply)
        if shared is None:
            shared = self._views[reply] = SharedView(self._tail.open(reply))
        with self.held(shared):
            yield shared

    @contextlib.contextmanager
    def held(self, shared: SharedView) -> Iterator[None]:
        self.hold(shared)
        try:
            yield
        finally:
            self.release(shared)

    def hold(self, shared: SharedView) -> None:
        """One more reader: the view stays until `release`."""
        shared.readers += 1
        if timer := self._idle.pop(shared.view.reply.id, None):
            timer.cancel()

    def release(self, shared: SharedView) -> None:
        shared.readers -= 1
        if shared.readers:
            return
        reply = shared.view.reply.id
        if not shared.view.seen or shared.failure:
            self._forget(shared)
            return
        self._idle[reply] = asyncio.get_running_loop().call_later(LINGER_S, self._forget, shared)
        if len(self._idle) > MOST_IDLE:
            oldest, _ = next(iter(self._idle.items()))
            self._forget(self._views[oldest])

    def ring_all(self) -> None:
        for shared in self._views.values():
            shared.ring()

    def close(self) -> None:
        """Forgets the views that nobody reads."""
        for reply in list(self._idle):
            self._forget(self._views[reply])

    def _forget(self, shared: SharedView) -> None:
        reply = shared.view.reply.id
        if timer := self._idle.pop(reply, None):
            timer.cancel()
        if self._views.get(reply) is shared:
            del self._views[reply]
        self._tail.close(shared.subscription)

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        """On a thread of the tail: decodes, and wakes the loop once for the whole batch."""
        assert self._loop is not None
        decoded = [(delivery, self._decoded(delivery.records)) for delivery in deliveries]
        _hand_over(self._loop, self._apply, decoded)

    def _decoded(self, records: Sequence[Record]) -> list[tuple[int, ReplyRecord]]:
        found: list[tuple[int, ReplyRecord]] = []
        for record in records:
            if record.value is None:
                continue  # a tombstone erases, and says nothing
            try:
                event = self._decoder.decode(record.value)
            except CodecError as error:
                told = about(reply=reply_of_key(record.key), error=error)
                logger.warning("%s offset %d is skipped", record.place, record.offset, extra=told)
                self._skipped()
                continue
            if type(event) in MOVES:
                found.append((record.offset, cast(ReplyRecord, event)))
            else:
                self._skipped()
        return found

    def _apply(self, batch: Sequence[tuple[Delivery, list[tuple[int, ReplyRecord]]]]) -> None:
        for delivery, records in batch:
            shared = self._views.get(delivery.subscription.reply)
            if shared is None or shared.subscription is not delivery.subscription:
                continue
            for offset, record in records:
                shared.view.apply(offset, record)
                if shared.pace is not None:
                    shared.pace.saw(record)
            shared.live = shared.live or delivery.live
            if delivery.failure:
                told = about(reply=delivery.subscription.reply, error=delivery.failure)
                logger.error("a reply cannot be read", extra=told)
                shared.failure = delivery.failure
                del self._views[delivery.subscription.reply]
            shared.ring()


def _hand_over(loop: asyncio.AbstractEventLoop, call: Callable[..., None], argument: object) -> None:
    """Runs `call(argument)` on the loop; a loop that has closed has nobody left to tell."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, argument)
