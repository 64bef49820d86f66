"""Replies as they are written: open one by its id and get every record of it once, in order, past and to come.

One Tail per process serves all its streams with two readers: `live` follows the home partitions, and any other
partition while somebody needs it and for a while after; `past` reads what lay in the log before a subscription began,
unless `live` or another's past has brought it here not long ago.

The seam between the two is an offset. Each followed partition has a position P, the next offset that `live` will hand
out, and keeps what was read of it from an offset B on (`recent.py`). A subscription is entered at P, with what is kept,
under the lock that also guards every hand-out, so `live` gives it exactly what lies at P and after, and catch-up gives
it exactly what lies before B. Live records are held until catch-up is through.
A reader that stood still for longer than the log remembers finds a hole; whoever may miss something by it is told.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from schemas.ids import ReplyId, created_ms
from topics.catalog import REPLIES
from topics.errors import Missed, TopicsError
from topics.log import BRIEFLY_MS, Log, Place, Record
from topics.recent import CLOCK_SLACK_MS, Followed, Recent
from topics.subscription import Deliver, Delivery, Source, Subscription, source_of

BATCH = 2_000
# A step of a replica comes as many small fetches; handing over what a moment brought costs a fraction of each alone.
MOMENT_S = 0.002
# For so long a visited partition may wait behind the others, when all of them are silent.
LIVE_HOLD_MS = 100
# So long a visited partition is followed when nobody reads it any more: whoever resumes finds it here.
VISIT_S = 60.0
# So much of what was read is kept, in all; a past of more records is read for those who wait for it, and not kept.
RECENT_BYTES = 128 << 20
KEPT_PAST = 50_000


class Tail:
    """Follows the partitions `home` from now on. Both threads call `deliver`, one at a time; it must not block.

    `follow_live` and `catch_up` each belong to one thread, which `start` runs; tests call them directly.
    """

    def __init__(self, log: Log, deliver: Deliver, home: Collection[int] = (), visit_s: float = VISIT_S) -> None:
        self._live, self._past = log.reader(hold_ms=LIVE_HOLD_MS), log.reader(hold_ms=BRIEFLY_MS)
        self._deliver, self._visit_s = deliver, visit_s
        self._lock = threading.Lock()
        self._followed = {Place(REPLIES, partition): self._home(Place(REPLIES, partition)) for partition in home}
        self._assigned: dict[Place, Followed] = {}
        self._subscriptions: defaultdict[Source, list[Subscription]] = defaultdict(list)
        self._behind: defaultdict[Place, list[Subscription]] = defaultdict(list)
        self._reaching: list[tuple[int, Subscription]] = []
        self._waiting: queue.SimpleQueue[Subscription] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def _home(self, place: Place) -> Followed:
        """A partition from its end on, which nothing lies before, or what was appended up to now."""
        end = self._past.end(place)
        before_ms = 0 if end == self._past.begin(place) else time.time_ns() // 1_000_000 + CLOCK_SLACK_MS
        return Followed(end, Recent(end, before_ms), home=True)

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
            self._give_up_idle()
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
            self._go_live()
            for followed in self._followed.values():
                followed.recent.shrink(RECENT_BYTES // len(self._followed))
        return bool(records)

    def catch_up(self, timeout_s: float) -> bool:
        """Delivers their past to all that wait for it and whose it is at hand, and then reads that of one partition
        for the others; returns after `timeout_s` if nobody waits. Returns whether somebody did.
        """
        arrived = self._arrived(0.0 if self._behind else timeout_s)
        for subscription in arrived:
            if not self._hand_recent(subscription):
                self._behind[subscription.place].append(subscription)
        if self._behind:
            place = next(iter(self._behind))
            together = self._behind.pop(place)
            try:
                self._read_past(place, together)
            except TopicsError as error:
                self._fail(together, error)
            return True
        return bool(arrived)

    def _arrived(self, timeout_s: float) -> list[Subscription]:
        arrived: list[Subscription] = []
        with contextlib.suppress(queue.Empty):
            arrived.append(self._waiting.get(timeout=timeout_s) if timeout_s else self._waiting.get_nowait())
            while True:
                arrived.append(self._waiting.get_nowait())
        return arrived

    def _hand_recent(self, subscription: Subscription) -> bool:
        """Whether all of the reply so far is at hand: then it is delivered. Of one that `live` has nothing of, the log
        has to be asked: it may be further than `live`.
        """
        with self._lock:
            followed = self._followed.get(subscription.place)
            if subscription.closed or not (followed and followed.recent.has_all(subscription.reply)):
                return subscription.closed
            records = followed.recent.of(subscription.source)
            if records:
                self._enter(subscription)
                subscription.live = True
                self._deliver([Delivery(subscription, records, True)])
        return bool(records)

    def _fail(self, subscriptions: Sequence[Subscription], error: TopicsError) -> None:
        with self._lock:
            failed = [subscription for subscription in subscriptions if not subscription.closed]
            for subscription in failed:
                self._leave(subscription)
            self._deliver([Delivery(subscription, (), False, error) for subscription in failed])

    def _read_past(self, place: Place, subscriptions: Sequence[Subscription]) -> None:
        end = self._past.end(place)
        with self._lock:
            followed = self._followed.setdefault(place, Followed(end, Recent(end), since_s=time.monotonic()))
            seam = followed.recent.begin
            for subscription in subscriptions:
                self._enter(subscription)
                subscription.held = [] if subscription.closed else followed.recent.of(subscription.source)
        oldest_ms = min(created_ms(subscription.reply) for subscription in subscriptions)
        start = self._past.offset_at(place, oldest_ms - CLOCK_SLACK_MS)
        read: list[Record] | None = []
        if start is not None and start < seam:
            self._past.add(place, start)
            try:
                read = self._read_to(seam, place, subscriptions)
            finally:
                self._past.remove(place)
        with self._lock:
            open_ones = [subscription for subscription in subscriptions if not subscription.closed]
            if open_ones and read is not None:  # had `live` met a hole since they were entered, none would be open
                followed.recent.add_older(read, seam, oldest_ms)
            self._reaching += [(end, subscription) for subscription in open_ones]
            self._go_live()

    def _read_to(self, seam: int, place: Place, subscriptions: Sequence[Subscription]) -> list[Record] | None:
        """Hands out what lies before the seam: the rest is at hand, or comes live. Raises Missed.

        Returns all that lies there, also of other replies; None if that is too much to keep, or was not needed.
        """
        of_source: defaultdict[Source, list[Subscription]] = defaultdict(list)
        for subscription in subscriptions:
            of_source[subscription.source].append(subscription)
        everything: list[Record] = []
        while (before := self._past.position(place)) < seam and not self._stopped.is_set():
            read = self._past.poll(BATCH, 0.1)
            after = read[0].offset if read else self._past.position(place)
            if after > before and self._past.begin(place) > before:
                raise Missed(f"{place}: offsets from {before} on were deleted while they were read")
            found: defaultdict[Subscription, list[Record]] = defaultdict(list)
            for record in read:
                for subscription in of_source.get(source_of(record), ()) if record.offset < seam else ():
                    found[subscription].append(record)
            if len(everything) <= KEPT_PAST:
                everything += read
            with self._lock:
                if all(subscription.closed for subscription in subscriptions):
                    return None
                if found:
                    self._deliver([Delivery(to, records, False) for to, records in found.items() if not to.closed])
        return None if self._stopped.is_set() or len(everything) > KEPT_PAST else everything

    def _go_live(self) -> None:
        """Those whose past is delivered, once `live` is as far as the log was when they came: it may be behind."""
        reaching = [(end, subscription) for end, subscription in self._reaching if not subscription.closed]
        there = [s for end, s in reaching if self._followed[s.place].position >= end]
        self._reaching = [(end, subscription) for end, subscription in reaching if subscription not in there]
        if there:
            self._deliver([Delivery(subscription, subscription.held, True) for subscription in there])
        for subscription in there:
            subscription.live = True
            subscription.held = []

    def _enter(self, subscription: Subscription) -> None:
        if not subscription.closed:
            followed = self._followed[subscription.place]
            followed.readers += 1
            self._subscriptions[subscription.source].append(subscription)

    def _leave(self, subscription: Subscription) -> None:
        readers = self._subscriptions.get(subscription.source, [])
        if subscription in readers:
            readers.remove(subscription)
            followed = self._followed[subscription.place]
            followed.readers -= 1
            followed.since_s = time.monotonic()
        if not readers:
            self._subscriptions.pop(subscription.source, None)
        subscription.closed = True
        subscription.held = []

    def _give_up_idle(self) -> None:
        """Those that are no home and have had no readers for a while."""
        now_s = time.monotonic()
        for place, followed in list(self._followed.items()):
            if not followed.home and not followed.readers and now_s - followed.since_s >= self._visit_s:
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
            followed.recent.add(record)
            for subscription in self._subscriptions.get(source_of(record), ()):
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
        followed.recent = Recent(reached)
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
