"""The log in one process: keeps the contract of `topics/log.py` for tests, the simulator and a first look.

Nothing here waits but `poll` with a timeout, and nothing runs by itself: the same calls in the same order do the same.
Threads may share it; one condition guards all state and wakes those who wait in `poll`. The methods of MemoryLog below
`partitions` are for tests: what a cluster does to its clients by itself.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from topics.errors import DeliveryFailed, Fenced, TopicMismatch, Unavailable
from topics.log import HOLD_MS, Append, Delivered, Place, Position, Rebalance, Record
from topics.memory_group import Group, MemoryGroupConsumer
from topics.memory_partition import Cursors, Partition


class MemoryLog:
    """Topics with their partition counts; `clock` gives the time of an append in milliseconds since 1970."""

    def __init__(self, topics: Mapping[str, int], clock: Callable[[], int]) -> None:
        self._topics: dict[str, int] = {}
        self._clock = clock
        self.changed = threading.Condition()
        self.places: dict[Place, Partition] = {}
        self.epochs: Counter[str] = Counter()
        self._groups: dict[str, Group] = {}
        self._failures: Counter[str] = Counter()
        for topic, partitions in topics.items():
            self.create(topic, partitions)

    def create(self, topic: str, partitions: int) -> None:
        with self.changed:
            self._topics[topic] = partitions
            for place in (Place(topic, partition) for partition in range(partitions)):
                self.places[place] = Partition(place)

    def producer(self, delivery_timeout_s: float = 10.0) -> MemoryProducer:
        return MemoryProducer(self)

    def transactions(self, group: str, topic: str, instance: str) -> MemoryTransactions:
        return MemoryTransactions(self, f"{group}.{instance}")

    def group(self, name: str, topics: Collection[str], rebalance: Rebalance, instance: str) -> MemoryGroupConsumer:
        places = tuple(sorted(Place(topic, p) for topic in topics for p in range(self.partitions(topic))))
        with self.changed:
            group = self._groups.setdefault(name, Group(name, places))
        if group.places != places:
            raise ValueError(f"the members of group {name} read {group.places}, not {places}")
        return MemoryGroupConsumer(group, self.places, self.changed, rebalance, instance)

    def reader(self, *, committed_only: bool = False, hold_ms: int = HOLD_MS) -> MemoryReader:
        return MemoryReader(self, committed_only)

    def committed(self, group: str, place: Place) -> Position | None:
        with self.changed:
            return self._groups[group].committed.get(place) if group in self._groups else None

    def partitions(self, topic: str) -> int:
        if topic not in self._topics:
            raise TopicMismatch(f"topic {topic} does not exist")
        return self._topics[topic]

    def delete_before(self, place: Place, offset: int) -> None:
        """Retention: everything of `place` before `offset` expires."""
        with self.changed:
            self.places[place].delete_before(offset)

    def compact(self, topic: str) -> None:
        """The cleaner's run: of each key only the newest record stays, and of those no tombstone."""
        with self.changed:
            for place, partition in self.places.items():
                if place.topic == topic:
                    partition.compact()

    def fail_deliveries(self, topic: str, count: int) -> None:
        """The next `count` records for `topic` do not reach the log."""
        with self.changed:
            self._failures[topic] += count

    def expel(self, group: str, instance: str) -> None:
        """A member has been silent for too long: its places go to the others, and it learns of it in its next poll."""
        with self.changed:
            self._groups[group].expel(instance)
            self.changed.notify_all()

    def refusal(self, append: Append) -> str | None:
        """Why this record cannot be appended now; None if it can. Uses up a failure. Called under the lock."""
        if append.place not in self.places:
            return f"{append.place} does not exist"
        if self._failures[append.place.topic] > 0:
            self._failures[append.place.topic] -= 1
            return f"{append.place} did not acknowledge"
        return None

    def append(self, append: Append, *, aborted: bool = False) -> None:
        """Appends to a place that exists, and wakes who waits. Called under the lock."""
        self.places[append.place].append(append, self._clock(), aborted=aborted)
        self.changed.notify_all()


class MemoryProducer:
    """Records are in the log when `send` returns; what became of them is told in `poll` or `flush`."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._reports: list[tuple[Delivered, DeliveryFailed | None]] = []
        self._failure: DeliveryFailed | None = None

    def send(self, append: Append, delivered: Delivered | None = None) -> None:
        with self._log.changed:
            refusal = self._log.refusal(append)
            if refusal is None:
                self._log.append(append)
        failure = DeliveryFailed(refusal) if refusal is not None else None
        self._failure = self._failure or failure
        if delivered is not None:
            self._reports.append((delivered, failure))

    def poll(self) -> None:
        reports, self._reports = self._reports, []
        for delivered, failure in reports:
            delivered(failure)

    def flush(self, timeout_s: float) -> None:
        self.poll()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise DeliveryFailed(f"records were not acknowledged; first failure: {failure}")

    def close(self) -> None:
        """Nothing is held."""


class MemoryTransactions:
    """An aborted transaction leaves its records behind, as on Kafka: only a committed_only reader is spared them."""

    def __init__(self, log: MemoryLog, name: str) -> None:
        self._log = log
        self._name = name
        with log.changed:
            log.epochs[name] += 1
            self._epoch = log.epochs[name]

    def commit(
        self,
        appends: Iterable[Append],
        positions: Mapping[Place, Position],
        membership: object,
        timeout_s: float,
    ) -> None:
        if not isinstance(membership, MemoryGroupConsumer):
            raise TypeError(f"{membership!r} is no group member of this log")
        appends = tuple(appends)
        with self._log.changed:
            if self._log.epochs[self._name] != self._epoch:
                raise Fenced(f"another process holds the transactional name {self._name} now")
            refusals = [refusal for append in appends if (refusal := self._log.refusal(append)) is not None]
            if refusals:
                raise Unavailable(f"transaction of {self._name} aborted: {refusals[0]}")
            try:
                membership.commit(positions)
            except Fenced:
                self._write(appends, aborted=True)
                raise
            self._write(appends, aborted=False)

    def close(self) -> None:
        """Nothing is held."""

    def _write(self, appends: tuple[Append, ...], *, aborted: bool) -> None:
        for append in appends:
            self._log.append(append, aborted=aborted)
        for place in {append.place for append in appends}:
            self._log.places[place].mark()


class MemoryReader:
    def __init__(self, log: MemoryLog, committed_only: bool) -> None:
        self._log = log
        self._cursors = Cursors(log.places, committed_only=committed_only)

    def add(self, place: Place, offset: int) -> None:
        with self._log.changed:
            self._partition(place)
            self._cursors.add(place, offset)

    def remove(self, place: Place) -> None:
        with self._log.changed:
            del self._cursors.next[place]

    def poll(self, limit: int, timeout_s: float) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        with self._log.changed:
            while True:
                records = self._cursors.take(limit)
                left = deadline - time.monotonic()
                if records or left <= 0:
                    return records
                self._log.changed.wait(left)

    def position(self, place: Place) -> int:
        with self._log.changed:
            return self._cursors.next[place]

    def begin(self, place: Place) -> int:
        with self._log.changed:
            return self._partition(place).begin

    def end(self, place: Place) -> int:
        with self._log.changed:
            return self._partition(place).end

    def offset_at(self, place: Place, timestamp_ms: int) -> int | None:
        with self._log.changed:
            return self._partition(place).offset_at(timestamp_ms)

    def close(self) -> None:
        with self._log.changed:
            self._cursors.next.clear()

    def _partition(self, place: Place) -> Partition:
        try:
            return self._log.places[place]
        except KeyError:
            raise TopicMismatch(f"{place} does not exist") from None
