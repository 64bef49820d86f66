"""The in-memory log as one process of the simulation sees it: every call can be the last, and sending takes time.

What is sent waits in the process, as in a real client: it reaches the log a little later, per partition in order, or
when a flush waits for it. A process that dies takes with it what had not left. A record whose delivery fails may be in
the log nevertheless.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from tests.simulation.processes import Process
from topics.errors import DeliveryFailed, TopicMismatch
from topics.log import HOLD_MS, Append, Delivered, Place, Position, Rebalance, Record
from topics.memory import MemoryLog, MemoryReader, MemoryTransactions
from topics.memory_group import MemoryGroupConsumer

EVERY = 1_000_000


class SharedLog(MemoryLog):
    """The cluster. `appended` is told of every record."""

    def __init__(self, topics: Mapping[str, int], clock: Callable[[], int], appended: Callable[[Append], None]) -> None:
        super().__init__(topics, clock)
        self._appended = appended
        self.acknowledged_ms = 15

    def append(self, append: Append, *, aborted: bool = False) -> None:
        super().append(append, aborted=aborted)
        self._appended(append)


class SimLog:
    """The clients of one process."""

    def __init__(self, shared: SharedLog, process: Process) -> None:
        self._shared, self._process = shared, process

    def producer(self, delivery_timeout_s: float = 10.0) -> SimProducer:
        return SimProducer(self._shared, self._process)

    def transactions(self, group: str, topic: str, instance: str) -> SimTransactions:
        self._process.call(f"open transactions {group}.{instance}")
        return SimTransactions(self._shared.transactions(group, topic, instance), self._process)

    def group(self, name: str, topics: Collection[str], rebalance: Rebalance, instance: str) -> SimConsumer:
        self._process.call(f"join {name}")
        self._process.reads |= frozenset(topics)
        return SimConsumer(self._shared.group(name, topics, rebalance, instance), self._process)

    def reader(self, *, committed_only: bool = False, hold_ms: int = HOLD_MS) -> SimReader:
        return SimReader(self._shared, committed_only, self._process)

    def committed(self, group: str, place: Place) -> Position | None:
        return self._shared.committed(group, place)

    def partitions(self, topic: str) -> int:
        return self._shared.partitions(topic)


class SimProducer:
    def __init__(self, shared: SharedLog, process: Process) -> None:
        self._shared, self._process = shared, process
        self._queues: dict[Place, list[tuple[Append, Delivered | None]]] = {}
        self._reports: list[tuple[Delivered, DeliveryFailed | None]] = []
        self._failures: list[DeliveryFailed] = []
        process.left_behind.append(self._left_behind)

    def send(self, append: Append, delivered: Delivered | None = None) -> None:
        self._process.call(f"send to {append.place.topic}")
        self._process.world.sending(append)
        self._queues.setdefault(append.place, []).append((append, delivered))
        delay_ms = self._process.random.randint(0, self._shared.acknowledged_ms + self._process.slow_ms)
        self._process.world.after(delay_ms, self._land_one)

    def poll(self) -> None:
        reports, self._reports = self._reports, []
        for delivered, failure in reports:
            delivered(failure)

    def flush(self, timeout_s: float) -> None:
        self._process.call("flush")
        while self._queues:
            self._land_one()
        self.poll()
        failures, self._failures = self._failures, []
        if failures:
            raise DeliveryFailed(f"{len(failures)} records were not acknowledged; first failure: {failures[0]}")

    def close(self) -> None:
        while self._queues:
            self._land_one()

    def _land_one(self) -> None:
        """The next record of any partition reaches the log, or fails."""
        if not self._queues:
            return
        place = self._process.random.choice(list(self._queues))
        append, delivered = self._queues[place].pop(0)
        if not self._queues[place]:
            del self._queues[place]
        failure = self._failure(append)
        if failure is None or self._process.random.random() < 0.3:
            self._append(append)
        if failure is not None:
            self._failures.append(failure)
        if delivered is not None:
            self._reports.append((delivered, failure))

    def _append(self, append: Append) -> None:
        """Once; or again a bit later, as by a writer that was not told that it had arrived: under a key of its own."""
        with self._shared.changed:
            self._shared.append(append)
        repeating, topic = self._process.repeating, append.place.topic
        if repeating.get(topic, 0) > 0:
            repeating[topic] -= 1
            again = replace(append, key=(append.key or b"") + b"+")
            self._process.world.note(self._process.name, f"delivers to {append.place.topic} twice")
            delay_ms = self._process.random.randint(0, self._process.repeat_within_ms)
            self._process.world.after(delay_ms, lambda: self._append(again))

    def _failure(self, append: Append) -> DeliveryFailed | None:
        if append.place not in self._shared.places:
            raise TopicMismatch(f"{append.place} does not exist")
        failing, topic = self._process.failing, append.place.topic
        if failing.get(topic, 0) <= 0:
            return None
        failing[topic] -= 1
        self._process.world.note(self._process.name, f"delivery to {append.place.topic} fails")
        return DeliveryFailed(f"{append.place} did not acknowledge")

    def _left_behind(self) -> None:
        """What is on its way when the process dies: some of it lands, some of that a while after."""
        waiting = sum(map(len, self._queues.values()))
        keep = self._process.random.randint(0, waiting)
        late = self._process.random.randint(0, keep)
        for _ in range(keep - late):
            self._land_one()
        self._process.world.after(self._process.random.randint(0, 60), lambda: self._land_late(late))

    def _land_late(self, count: int) -> None:
        for _ in range(count):
            self._land_one()
        self._queues.clear()


class SimTransactions:
    def __init__(self, inner: MemoryTransactions, process: Process) -> None:
        self._inner, self._process = inner, process

    def commit(
        self, appends: Iterable[Append], positions: Mapping[Place, Position], membership: object, timeout_s: float
    ) -> None:
        self._process.call("commit a transaction")
        self._inner.commit(appends, positions, membership, timeout_s)
        self._process.call("see the transaction committed")

    def close(self) -> None:
        """Nothing is held."""


class SimConsumer:
    def __init__(self, inner: MemoryGroupConsumer, process: Process) -> None:
        self._inner, self._process = inner, process

    def poll(self, limit: int, timeout_s: float) -> list[Record]:
        self._process.call("poll the group")
        return self._inner.poll(min(limit, self._process.random.choice((1, 3, EVERY))), 0.0)

    def committed(self, places: Collection[Place]) -> dict[Place, Position]:
        self._process.call("ask for what was committed")
        return self._inner.committed(places)

    def commit(self, positions: Mapping[Place, Position]) -> None:
        self._process.call("commit offsets")
        self._inner.commit(positions)

    def hold(self, on: bool) -> None:
        self._inner.hold(on)

    def membership(self) -> object:
        return self._inner

    def close(self) -> None:
        self._process.call("leave the group")
        self._inner.close()


class SimReader(MemoryReader):
    def __init__(self, shared: SharedLog, committed_only: bool, process: Process) -> None:
        super().__init__(shared, committed_only)
        self._process = process

    def add(self, place: Place, offset: int) -> None:
        self._process.reads |= {place.topic}
        super().add(place, offset)

    def poll(self, limit: int, timeout_s: float) -> list[Record]:
        self._process.call("read")
        return super().poll(min(limit, self._process.random.choice((1, 5, EVERY))), 0.0)
