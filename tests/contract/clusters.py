"""The clusters that the log's contract is run on: the in-memory twin and a real Kafka broker, behind one shape."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Protocol
from uuid import uuid4

from confluent_kafka import Producer as KafkaProducer
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from topics.config import KafkaConfig
from topics.kafka import KafkaLog
from topics.log import BRIEFLY_MS, Append, GroupConsumer, Log, Place, Position, Reader, Record
from topics.memory import MemoryLog

PATIENCE_S = 60.0
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.0",
    "delete.retention.ms": "0",
}


class Cluster(Protocol):
    """A log, and what its operator and time do to it."""

    log: Log

    def topic(self, partitions: int = 1, **settings: str) -> str:
        """A fresh topic."""

    def delete_before(self, place: Place, offset: int) -> None: ...

    def compact(self, place: Place) -> None:
        """Returns when the cleaner has merged the keys; it may have appended records of the key `filler`."""


class MemoryCluster:
    def __init__(self) -> None:
        self.log = MemoryLog({}, lambda: time.time_ns() // 1_000_000)
        self._names = (f"topic-{n}" for n in count())
        self.delete_before = self.log.delete_before

    def topic(self, partitions: int = 1, **_: str) -> str:
        name = next(self._names)
        self.log.create(name, partitions)
        return name

    def compact(self, place: Place) -> None:
        self.log.compact(place.topic)


class KafkaCluster:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.log = KafkaLog(KafkaConfig(kafka=bootstrap))
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def topic(self, partitions: int = 1, **settings: str) -> str:
        name = f"contract-{uuid4().hex[:12]}"
        config = {"message.timestamp.type": "LogAppendTime"} | settings
        for made in self._admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
            made.result(PATIENCE_S)
        return name

    def delete_before(self, place: Place, offset: int) -> None:
        for deleted in self._admin.delete_records([TopicPartition(*place, offset)]).values():
            deleted.result(PATIENCE_S)

    def compact(self, place: Place) -> None:
        producer, deadline = KafkaProducer({"bootstrap.servers": self.bootstrap}), time.monotonic() + PATIENCE_S
        while not self._merged(place) and time.monotonic() < deadline:
            producer.produce(place.topic, b"", b"filler", place.partition)
            producer.flush(PATIENCE_S)

    def _merged(self, place: Place) -> bool:
        """Each key is left once; the cleaner may have come to the older segments of a slow writer first."""
        reader = self.log.reader(hold_ms=BRIEFLY_MS)
        reader.add(place, 0)
        try:
            keys = [record.key for record in read_to_end(reader, place) if record.key != b"filler"]
        finally:
            reader.close()
        return len(keys) == len(set(keys))


class Member:
    """A group member that counts: reads, commits what it has read when it must give places up, remembers all."""

    def __init__(self, log: Log, group: str, topic: str, instance: str, starts: dict[Place, int] | None = None) -> None:
        self.held: set[Place] = set()
        self.calls: list[str] = []
        self.records: list[Record] = []
        self._starts = starts or {}
        self._next: dict[Place, Position] = {}
        self.consumer: GroupConsumer = log.group(group, [topic], self, instance)

    def poll(self, timeout_s: float = 0.1) -> None:
        for record in self.consumer.poll(100, timeout_s):
            self.records.append(record)
            self._next[record.place] = Position(record.offset + 1, f"after {record.offset}")

    def assigned(self, places: Sequence[Place]) -> dict[Place, int]:
        self.calls.append("assigned")
        self.held.update(places)
        return {place: self._starts[place] for place in places if place in self._starts}

    def revoked(self, places: Sequence[Place]) -> None:
        self.calls.append("revoked")
        self.consumer.commit({place: self._next[place] for place in places if place in self._next})
        self.held.difference_update(places)

    def lost(self, places: Sequence[Place]) -> None:
        self.calls.append("lost")
        self.held.difference_update(places)


def read(reader: Reader, count: int) -> list[Record]:
    """The next `count` records; fewer only if they do not come."""
    records: list[Record] = []
    wait_for(lambda: records.extend(reader.poll(count - len(records), 0.1)) or len(records) >= count)
    return records


def read_to_end(reader: Reader, place: Place) -> list[Record]:
    """All records until the position is the end."""
    records: list[Record] = []
    wait_for(lambda: records.extend(reader.poll(100, 0.1)) or reader.position(place) == reader.end(place))
    return records


def drive(members: Sequence[Member], done: Callable[[], bool]) -> None:
    """Polls the members in turn until `done`."""

    def turn() -> bool:
        for member in members:
            member.poll()
        return done()

    wait_for(turn)


def wait_for(done: Callable[[], bool]) -> None:
    """Repeats `done`, which itself takes its time, until it is true. Fails after PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, f"not so after {PATIENCE_S} s"


def write(log: Log, place: Place, *values: bytes | None, key: bytes | None = b"k") -> None:
    producer = log.producer()
    for value in values:
        producer.send(Append(place, key, value))
    producer.flush(PATIENCE_S)
    producer.close()


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]
