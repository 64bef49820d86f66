"""Replies as they are written: open one by its id and get every record of it once, in order, past and to come.

One Tail per process serves all its streams with two readers: `live` follows the home partitions, and any other
partition while somebody needs it; `past` reads what lay in the log before a subscription began.

The seam between the two is an offset. Each followed partition has a position P, the next offset that `live` will hand
out. A subscription is entered at P under the lock that also guards every hand-out, so `live` gives it exactly what lies
at P and after, and catch-up gives it exactly what lies before. Live records are held until catch-up is through.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from schemas.ids import ReplyId, created_ms, reply_partition
from topics.catalog import REPLIES, SECOND
from topics.errors import TopicsError
from topics.log import Log, Place, Record

CLOCK_SLACK_MS = 10 * SECOND
BATCH = 2_000

Source: TypeAlias = tuple[Place, bytes]


@dataclass(eq=False, slots=True)
class Subscription:
    """One reader of one reply. `seam` is the first offset that came live; `live` that all before it was delivered."""

    reply: ReplyId
    seam: int = -1
    live: bool = False
    closed: bool = False
    held: list[Record] = field(default_factory=list)

    @property
    def place(self) -> Place:
        return Place(REPLIES, reply_partition(self.reply))

    @property
    def source(self) -> Source:
        return self.place, self.reply.encode() + b"/"


@dataclass(frozen=True, slots=True)
class Delivery:
    """Records of one subscription. `live`: nothing older is missing. `failure`: the subscription has ended by it."""

    subscription: Subscription
    records: Sequence[Record]
    live: bool
    failure: TopicsError | None = None


Deliver = Callable[[Sequence[Delivery]], None]


def _source(record: Record) -> Source:
    """Where a record comes from: its partition, and the reply in its key with the slash that follows."""
    reply, separator, _ = (record.key or b"").partition(b"/")
    return record.place, reply + separator


@dataclass(eq=False, slots=True)
class _Followed:
    """A partition that `live` is to read from `position` on; given up when it is no home and has no readers."""

    position: int
    home: bool = False
    readers: int = 0


class Tail:
    """Follows the partitions `home` from now on. Both threads call `deliver`, one at a time; it must not block.

    `follow_live` and `catch_up` each belong to one thread, which `start` runs; tests call them directly.
    """

    def __init__(self, log: Log, deliver: Deliver, home: Collection[int] = ()) -> None:
        self._live, self._past = log.reader(), log.reader()
        self._deliver = deliver
        self._lock = threading.Lock()
        places = [Place(REPLIES, partition) for partition in home]
        self._followed = {place: _Followed(self._past.end(place), home=True) for place in places}
        self._assigned: dict[Place, _Followed] = {}
        self._subscriptions: defaultdict[Source, list[Subscription]] = defaultdict(list)
        self._waiting: queue.SimpleQueue[Subscription] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def follow(self, reply: ReplyId) -> Subscription:
        """Subscribes to a reply that was minted just now in a home partition: nothing of it can lie before."""
        subscription = Subscription(reply, live=True)
        with self._lock:
            self._enter(subscription)
        return subscription

    def open(self, reply: ReplyId) -> Subscription:
        """Subscribes to a reply from its first record on; what lies in the log is delivered by `catch_up`."""
        subscription = Subscription(reply)
        self._waiting.put(subscription)
        return subscription

    def close(self, subscription: Subscription) -> None:
        """Nothing is delivered to the subscription after this returns."""
        with self._lock:
            self._leave(subscription)

    def follow_live(self, timeout_s: float) -> None:
        """Hands out what has been appended to the followed partitions; waits up to `timeout_s` for something."""
        with self._lock:
            wanted = dict(self._followed)
        for place in [place for place, followed in self._assigned.items() if wanted.get(place) is not followed]:
            self._live.remove(place)
            del self._assigned[place]
        for place in sorted(wanted.keys() - self._assigned.keys()):
            self._live.add(place, wanted[place].position)
            self._assigned[place] = wanted[place]
        records = self._live.poll(BATCH, timeout_s)
        if records:
            with self._lock:
                self._hand_out(records)

    def catch_up(self, timeout_s: float) -> None:
        """Reads the past of the next subscription that waits for it; returns after `timeout_s` if none does."""
        try:
            subscription = self._waiting.get(timeout=timeout_s)
        except queue.Empty:
            return
        try:
            self._read_past(subscription)
        except TopicsError as error:
            with self._lock:
                if not subscription.closed:
                    self._leave(subscription)
                    self._deliver([Delivery(subscription, (), False, error)])

    def _read_past(self, subscription: Subscription) -> None:
        place = subscription.place
        end = self._past.end(place)
        with self._lock:
            self._followed.setdefault(place, _Followed(end))
            self._enter(subscription)
            self._give_up(place)
        start = self._past.offset_at(place, created_ms(subscription.reply) - CLOCK_SLACK_MS)
        if start is not None and start < subscription.seam:
            self._past.add(place, start)
            try:
                self._read_to_seam(subscription)
            finally:
                self._past.remove(place)
        with self._lock:
            subscription.live = True
            if not subscription.closed:
                self._deliver([Delivery(subscription, subscription.held, True)])
            subscription.held = []

    def _read_to_seam(self, subscription: Subscription) -> None:
        place, source, seam = subscription.place, subscription.source, subscription.seam
        while self._past.position(place) < seam and not subscription.closed and not self._stopped.is_set():
            read = self._past.poll(BATCH, 0.1)
            mine = [record for record in read if _source(record) == source and record.offset < seam]
            if mine:
                with self._lock:
                    if not subscription.closed:
                        self._deliver([Delivery(subscription, mine, False)])

    def _enter(self, subscription: Subscription) -> None:
        if not subscription.closed:
            followed = self._followed[subscription.place]
            followed.readers += 1
            subscription.seam = followed.position
            self._subscriptions[subscription.source].append(subscription)

    def _leave(self, subscription: Subscription) -> None:
        readers = self._subscriptions.get(subscription.source, [])
        if subscription in readers:
            readers.remove(subscription)
            self._followed[subscription.place].readers -= 1
        if not readers:
            self._subscriptions.pop(subscription.source, None)
        subscription.closed = True
        self._give_up(subscription.place)

    def _give_up(self, place: Place) -> None:
        followed = self._followed.get(place)
        if followed and not followed.home and not followed.readers:
            del self._followed[place]

    def _hand_out(self, records: Sequence[Record]) -> None:
        batch: defaultdict[Subscription, list[Record]] = defaultdict(list)
        for record in records:
            followed = self._followed.get(record.place)
            if followed is None or followed is not self._assigned.get(record.place):
                continue  # given up since, or followed anew from a position that `live` is yet to be put to
            followed.position = record.offset + 1
            for subscription in self._subscriptions.get(_source(record), ()):
                (batch[subscription] if subscription.live else subscription.held).append(record)
        if batch:
            self._deliver([Delivery(subscription, found, True) for subscription, found in batch.items()])

    def start(self, failed: Callable[[BaseException], None]) -> None:
        """Runs both threads; an error that ends one is given to `failed`, once."""
        for name, step in (("tail-live", self.follow_live), ("tail-past", self.catch_up)):
            thread = threading.Thread(target=self._run, args=(step, failed), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Ends both threads and closes the readers."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self._live.close()
        self._past.close()

    def _run(self, step: Callable[[float], None], failed: Callable[[BaseException], None]) -> None:
        try:
            while not self._stopped.is_set():
                step(0.05)
        except BaseException as error:
            failed(error)
            raise
