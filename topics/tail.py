"""Replies as they are written: open one by its id and get every record of it once, in order, past and to come.

One Tail per process serves all its streams with two readers: `live` follows the home partitions, and any other
partition while somebody needs it; `past` reads what lay in the log before a subscription began.

The seam between the two is an offset. Each followed partition has a position P, the next offset that `live` will hand
out. A subscription is entered at P under the lock that also guards every hand-out, so `live` gives it exactly what lies
at P and after, and catch-up gives it exactly what lies before. Live records are held until catch-up is through.
A reader that stood still for longer than the log remembers finds a hole; whoever may miss something by it is told.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from schemas.ids import ReplyId, created_ms, reply_partition
from topics.catalog import REPLIES, SECOND
from topics.errors import Missed, TopicsError
from topics.log import BRIEFLY_MS, Log, Place, Record

CLOCK_SLACK_MS = 10 * SECOND
BATCH = 2_000
# A step of a replica comes as many small fetches; handing over what a moment brought costs a fraction of each alone.
MOMENT_S = 0.002
# For so long a visited partition may wait behind the others, when all of them are silent.
LIVE_HOLD_MS = 100

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
        self._live, self._past = log.reader(hold_ms=LIVE_HOLD_MS), log.reader(hold_ms=BRIEFLY_MS)
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
        assert subscription.source, "an id that is none fails here, not on the thread of all"
        self._waiting.put(subscription)
        return subscription

    def close(self, subscription: Subscription) -> None:
        """Nothing is delivered to the subscription after this returns."""
        with self._lock:
            self._leave(subscription)

    def follow_live(self, timeout_s: float) -> bool:
        """Hands out what has been appended to the followed partitions; waits up to `timeout_s` for something.

        Returns whether there was something.
        """
        with self._lock:
            wanted = dict(self._followed)
        for place in [place for place, followed in self._assigned.items() if wanted.get(place) is not followed]:
            self._live.remove(place)
            del self._assigned[place]
        for place in sorted(wanted.keys() - self._assigned.keys()):
            self._live.add(place, wanted[place].position)
            self._assigned[place] = wanted[place]
        records = self._live.poll(BATCH, timeout_s)
        reached = [(place, self._live.position(place)) for place in self._assigned]
        with self._lock:
            self._hand_out(records)
            for place, position in reached:
                self._pass_hole(place, position)
        return bool(records)

    def catch_up(self, timeout_s: float) -> bool:
        """Reads the past of the subscriptions that wait for it, those of one partition at once; returns after
        `timeout_s` if none does. Returns whether there was one.
        """
        try:
            waiting = [self._waiting.get(timeout=timeout_s)]
        except queue.Empty:
            return False
        with contextlib.suppress(queue.Empty):
            while True:
                waiting.append(self._waiting.get_nowait())
        by_place: defaultdict[Place, list[Subscription]] = defaultdict(list)
        for subscription in waiting:
            by_place[subscription.place].append(subscription)
        for place, together in by_place.items():
            try:
                self._read_past(place, together)
            except TopicsError as error:
                self._fail(together, error)
        return True

    def _fail(self, subscriptions: Sequence[Subscription], error: TopicsError) -> None:
        with self._lock:
            failed = [subscription for subscription in subscriptions if not subscription.closed]
            for subscription in failed:
                self._leave(subscription)
            self._deliver([Delivery(subscription, (), False, error) for subscription in failed])

    def _read_past(self, place: Place, subscriptions: Sequence[Subscription]) -> None:
        end = self._past.end(place)
        with self._lock:
            self._followed.setdefault(place, _Followed(end))
            for subscription in subscriptions:
                self._enter(subscription)
            self._give_up(place)
        oldest_ms = min(created_ms(subscription.reply) for subscription in subscriptions)
        start = self._past.offset_at(place, oldest_ms - CLOCK_SLACK_MS)
        if start is not None and start < max(subscription.seam for subscription in subscriptions):
            self._past.add(place, start)
            try:
                self._read_to_seam(place, subscriptions)
            finally:
                self._past.remove(place)
        with self._lock:
            for subscription in subscriptions:
                subscription.live = True
            open_ones = [subscription for subscription in subscriptions if not subscription.closed]
            self._deliver([Delivery(subscription, subscription.held, True) for subscription in open_ones])
            for subscription in subscriptions:
                subscription.held = []

    def _read_to_seam(self, place: Place, subscriptions: Sequence[Subscription]) -> None:
        """Hands out what lies before their seam, which is one, for they were entered at once. Raises Missed."""
        seam = max(subscription.seam for subscription in subscriptions)
        of_source: defaultdict[Source, list[Subscription]] = defaultdict(list)
        for subscription in subscriptions:
            of_source[subscription.source].append(subscription)
        while (before := self._past.position(place)) < seam and not self._stopped.is_set():
            read = self._past.poll(BATCH, 0.1)
            after = read[0].offset if read else self._past.position(place)
            if after > before and self._past.begin(place) > before:
                raise Missed(f"{place}: offsets from {before} on were deleted while they were read")
            found: defaultdict[Subscription, list[Record]] = defaultdict(list)
            for record in read:
                for subscription in of_source.get(_source(record), ()) if record.offset < seam else ():
                    found[subscription].append(record)
            with self._lock:
                if all(subscription.closed for subscription in subscriptions):
                    return
                if found:
                    self._deliver([Delivery(to, records, False) for to, records in found.items() if not to.closed])

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
            if followed.position != record.offset:
                self._pass_hole(record.place, record.offset)
            followed.position = record.offset + 1
            for subscription in self._subscriptions.get(_source(record), ()):
                (batch[subscription] if subscription.live else subscription.held).append(record)
        left = [Delivery(subscription, found, True) for subscription, found in batch.items() if not subscription.closed]
        if left:
            self._deliver(left)

    def _pass_hole(self, place: Place, reached: int) -> None:
        """Goes on at the offset `live` has reached; if that skips some, ends every subscription there."""
        followed = self._followed.get(place)
        if followed is None or followed is not self._assigned.get(place) or followed.position == reached:
            return
        error = Missed(f"{place}: offsets {followed.position} to {reached - 1} were deleted before they were read")
        followed.position = reached
        missing = [s for found in self._subscriptions.values() for s in found if s.place == place]
        for subscription in missing:
            self._leave(subscription)
        self._deliver([Delivery(subscription, (), False, error) for subscription in missing])

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

    def _run(self, step: Callable[[float], bool], failed: Callable[[BaseException], None]) -> None:
        try:
            while not self._stopped.is_set():
                if step(0.05):
                    self._stopped.wait(MOMENT_S)
        except BaseException as error:
            failed(error)
            raise
