"""The log on a real Kafka cluster. The only place with Kafka client settings; each one that is set bites otherwise.

Every librdkafka error leaves here as an error of `topics/errors.py`. Deliveries are acknowledged by all in-sync
replicas (idempotent producers), so an acknowledged record is as durable as the cluster makes it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Producer as KafkaProducer

from topics.catalog import LARGEST_RECORD
from topics.config import KafkaConfig
from topics.errors import DeliveryFailed, Fenced, TopicMismatch, TopicsError, Unavailable
from topics.log import Append, Delivered, GroupConsumer, Place, Position, Rebalance, Record

T = TypeVar("T")

REQUEST_TIMEOUT_S = 30.0

PRODUCER = {
    "enable.idempotence": True,
    "linger.ms": 0,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 65_536,
    "message.max.bytes": LARGEST_RECORD,
}
CONSUMER = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 50,
    "fetch.queue.backoff.ms": 5,
    "queued.max.messages.kbytes": 16_384,
}
GROUP = {
    "partition.assignment.strategy": "range",  # partitions of one number of all topics go to one member
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 1_000,
    "isolation.level": "read_committed",
}

_FENCED = {
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._STATE,
    KafkaError._ASSIGNMENT_LOST,
}
_PASSING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._WAIT_COORD,
    KafkaError._TRANSPORT,
}
_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


def translated(error: KafkaError, doing: str) -> TopicsError:
    """A librdkafka error as one of ours, saying what was being done."""
    text = f"{doing}: {error.str()} ({error.name()})"
    if error.code() in _FENCED:
        return Fenced(text)
    return TopicMismatch(text) if error.code() in _MISSING else Unavailable(text)


@contextlib.contextmanager
def _errors(doing: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as raised:
        raise translated(raised.args[0], doing) from raised


def _asked(doing: str, ask: Callable[[], T]) -> T:
    """What a request answers; asked again while leaders or coordinators are only being found."""
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        try:
            return ask()
        except KafkaException as raised:
            if raised.args[0].code() not in _PASSING or time.monotonic() > deadline:
                raise translated(raised.args[0], doing) from raised
        time.sleep(0.1)


class KafkaLog:
    """A factory of clients for the cluster of `config`; keeps the contract of `topics.log.Log`."""

    def __init__(self, config: KafkaConfig) -> None:
        self._connection: dict[str, Any] = {**config.connection(), "log_level": 3}

    def producer(self, delivery_timeout_s: float = 10.0) -> KafkaLogProducer:
        timeout = {"delivery.timeout.ms": int(delivery_timeout_s * 1000)}
        return KafkaLogProducer(KafkaProducer(self._connection | PRODUCER | timeout))

    def transactions(self, name: str) -> KafkaTransactions:
        settings = {"transactional.id": f"laneway.{name}", "transaction.timeout.ms": 60_000}
        return KafkaTransactions(KafkaProducer(self._connection | PRODUCER | settings))

    def group(self, name: str, topics: Collection[str], rebalance: Rebalance, instance: str) -> KafkaGroupConsumer:
        settings = {"group.id": f"laneway.{name}", "group.instance.id": f"laneway.{name}.{instance}"}
        return KafkaGroupConsumer(Consumer(self._connection | CONSUMER | GROUP | settings), topics, rebalance)

    def reader(self, *, committed_only: bool = False) -> KafkaReader:
        isolation = "read_committed" if committed_only else "read_uncommitted"
        settings = {"group.id": "laneway.readers", "isolation.level": isolation}
        return KafkaReader(Consumer(self._connection | CONSUMER | settings))

    def partitions(self, topic: str) -> int:
        client = KafkaProducer(self._connection)
        with _errors(f"looking up topic {topic}"):
            found = client.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
        if found.error is not None:
            raise translated(found.error, f"looking up topic {topic}")
        return len(found.partitions)


class KafkaLogProducer:
    def __init__(self, client: KafkaProducer) -> None:
        self._client = client
        self._failure: Exception | None = None

    def send(self, append: Append, delivered: Delivered | None = None) -> None:
        def report(error: KafkaError | None, _: Message) -> None:
            failure = translated(error, f"delivering to {append.place.topic}") if error else None
            self._failure = self._failure or failure
            if delivered:
                delivered(failure)

        place = append.place
        while True:
            try:
                self._client.produce(place.topic, append.value, append.key, place.partition, on_delivery=report)
                return
            except BufferError:
                self._client.poll(0.05)
            except KafkaException as raised:
                raise translated(raised.args[0], f"writing to {place.topic}") from raised

    def poll(self) -> None:
        self._client.poll(0)

    def flush(self, timeout_s: float) -> None:
        left = self._client.flush(timeout_s)
        failure, self._failure = self._failure, None
        if left or failure:
            raise DeliveryFailed(f"{left} records not acknowledged after {timeout_s} s; first failure: {failure}")

    def close(self) -> None:
        self._client.flush(5.0)


class KafkaTransactions:
    """Opening it waits until transactions in flight of an earlier holder of the name are ended."""

    def __init__(self, client: KafkaProducer) -> None:
        self._client = client
        with _errors("taking over a transactional id"):
            client.init_transactions(REQUEST_TIMEOUT_S)

    def commit(
        self, appends: Iterable[Append], positions: Mapping[Place, Position], consumer: GroupConsumer, timeout_s: float
    ) -> None:
        member = cast(KafkaGroupConsumer, consumer)
        member.check(positions)
        group = member.group_metadata()
        with _errors("committing a transaction"):
            self._client.begin_transaction()
            try:
                for append in appends:
                    place = append.place
                    self._client.produce(place.topic, append.value, append.key, place.partition)
                    self._client.poll(0)
                self._client.send_offsets_to_transaction(_partitions(positions), group, timeout_s)
                self._client.commit_transaction(timeout_s)
            except KafkaException as raised:
                if not raised.args[0].fatal():
                    self._client.abort_transaction(timeout_s)
                raise

    def close(self) -> None:
        self._client.flush(5.0)


class _Polling:
    """What both kinds of consumer share: batches without waiting for a full one, and positions past holes."""

    def __init__(self, client: Consumer) -> None:
        self._client = client
        self._ahead: dict[Place, int] = {}

    def poll(self, limit: int, timeout_s: float) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        while True:
            with _errors("reading"):
                first = self._client.poll(max(0.0, deadline - time.monotonic()))
                rest = self._client.consume(limit - 1, 0) if first is not None and limit > 1 else []
            messages = [message for message in (first, *rest) if message is not None]  # an empty one is falsy
            records = [record for message in messages if (record := self._take(message))]
            if records or time.monotonic() >= deadline:
                return records

    def _take(self, message: Message) -> Record | None:
        place = Place(cast(str, message.topic()), cast(int, message.partition()))
        offset = cast(int, message.offset())
        error = message.error()
        if error is None:
            self._ahead[place] = offset + 1
            return Record(place, offset, message.timestamp()[1], message.key(), message.value())
        if error.code() == KafkaError._PARTITION_EOF:
            self._ahead[place] = offset
            return None
        if error.code() in (KafkaError._MAX_POLL_EXCEEDED, *_MISSING) or error.fatal():
            raise translated(error, "reading")
        return None  # librdkafka goes on by itself after every other error

    def close(self) -> None:
        self._client.close()


class KafkaReader(_Polling):
    def add(self, place: Place, offset: int) -> None:
        self._ahead[place] = offset
        with _errors(f"reading {place}"):
            self._client.incremental_assign([TopicPartition(*place, offset)])

    def remove(self, place: Place) -> None:
        with _errors(f"leaving {place}"):
            self._client.incremental_unassign([TopicPartition(*place)])

    def position(self, place: Place) -> int:
        return self._ahead[place]

    def begin(self, place: Place) -> int:
        return self._watermarks(place)[0]

    def end(self, place: Place) -> int:
        return self._watermarks(place)[1]

    def offset_at(self, place: Place, timestamp_ms: int) -> int | None:
        wanted = TopicPartition(*place, max(timestamp_ms, 0))
        [found] = _asked(
            f"finding a time in {place}", lambda: self._client.offsets_for_times([wanted], REQUEST_TIMEOUT_S)
        )
        if found.error is not None:
            raise translated(found.error, f"finding a time in {place}")
        return found.offset if found.offset >= 0 else None

    def _watermarks(self, place: Place) -> tuple[int, int]:
        found = _asked(
            f"asking for the ends of {place}",
            lambda: self._client.get_watermark_offsets(TopicPartition(*place), REQUEST_TIMEOUT_S),
        )
        if found is None:
            raise Unavailable(f"asking for the ends of {place}: no answer in {REQUEST_TIMEOUT_S} s")
        return found


class KafkaGroupConsumer(_Polling):
    def __init__(self, client: Consumer, topics: Collection[str], rebalance: Rebalance) -> None:
        super().__init__(client)
        self._rebalance = rebalance
        self._held: set[Place] = set()
        self._failure: TopicsError | None = None
        with _errors(f"joining the readers of {', '.join(topics)}"):
            client.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def poll(self, limit: int, timeout_s: float) -> list[Record]:
        records = super().poll(limit, timeout_s)
        failure, self._failure = self._failure, None
        if failure:
            raise failure  # an exception in a librdkafka callback would be lost
        return records

    def committed(self, places: Collection[Place]) -> dict[Place, Position]:
        wanted = [TopicPartition(*place) for place in places]
        found = _asked("asking for committed positions", lambda: self._client.committed(wanted, REQUEST_TIMEOUT_S))
        return {Place(p.topic, p.partition): Position(p.offset, p.metadata or "") for p in found if p.offset >= 0}

    def commit(self, positions: Mapping[Place, Position]) -> None:
        self.check(positions)
        if positions:
            with _errors("committing positions"):
                self._client.commit(offsets=_partitions(positions), asynchronous=False)

    def check(self, places: Iterable[Place]) -> None:
        """Raises Fenced for a place that is not this member's; the coordinator itself looks at members only."""
        if foreign := sorted(set(places) - self._held):
            raise Fenced(f"committing positions: {', '.join(map(str, foreign))} belong to another member")

    def group_metadata(self) -> object:
        return self._client.consumer_group_metadata()

    def _assigned(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        places = [Place(p.topic, p.partition) for p in partitions]
        self._held.update(places)
        try:
            starts = self._rebalance.assigned(places)
        except TopicsError as error:
            self._failure, starts = error, {}
        client.assign([TopicPartition(*p, starts[p]) if p in starts else TopicPartition(*p) for p in places])

    def _revoked(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            self._rebalance.revoked([Place(p.topic, p.partition) for p in partitions])
        except TopicsError as error:
            self._failure = error
        self._held.clear()
        client.unassign()

    def _lost(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        self._held.clear()
        self._rebalance.lost([Place(p.topic, p.partition) for p in partitions])
        client.unassign()


def _partitions(positions: Mapping[Place, Position]) -> list[TopicPartition]:
    return [TopicPartition(*place, position.offset, position.metadata) for place, position in positions.items()]
