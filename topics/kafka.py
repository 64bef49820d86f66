"""The log on a real Kafka cluster. The only place with Kafka client settings; each one that is set bites otherwise.

Every librdkafka error leaves here as an error of `topics/errors.py`. Deliveries are acknowledged by all in-sync
replicas (idempotent producers), so an acknowledged record is as durable as the cluster makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Producer as KafkaProducer

from topics.catalog import LARGEST_RECORD
from topics.config import KafkaConfig
from topics.errors import DeliveryFailed
from topics.kafka_consumers import KafkaGroupConsumer, KafkaMembership, KafkaReader, Members, partitions_of
from topics.kafka_errors import LIBRDKAFKA, MISSING, REQUEST_TIMEOUT_S, asked, errors, translated
from topics.log import HOLD_MS, Append, Delivered, Place, Position, Rebalance

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
    "fetch.queue.backoff.ms": 5,
    "queued.max.messages.kbytes": 16_384,
}
GROUP = {
    "partition.assignment.strategy": "range",  # partitions of one number of all topics go to one member
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 1_000,
    "fetch.wait.max.ms": HOLD_MS,
    "isolation.level": "read_committed",
}

PURGED_S = 1.0

# What a group answers to positions of one who is no member of it.
STRANGER = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.FENCED_INSTANCE_ID, *MISSING}


class KafkaLog:
    """A factory of clients for the cluster of `config`; keeps the contract of `topics.log.Log`."""

    def __init__(self, config: KafkaConfig) -> None:
        self._connection: dict[str, Any] = {**config.connection(), "log_level": 3, "logger": LIBRDKAFKA}

    def producer(self, delivery_timeout_s: float = 10.0) -> KafkaLogProducer:
        timeout = {"delivery.timeout.ms": int(delivery_timeout_s * 1000)}
        return KafkaLogProducer(lambda: KafkaProducer(self._connection | PRODUCER | timeout))

    def transactions(self, group: str, topic: str, instance: str) -> KafkaTransactions:
        settings = {"transactional.id": f"laneway.{group}.{instance}", "transaction.timeout.ms": 60_000}
        bystander = Consumer(self._connection | {"group.id": f"laneway.{group}"})
        try:
            membership = bystander.consumer_group_metadata()
        finally:
            bystander.close()
        return KafkaTransactions(KafkaProducer(self._connection | PRODUCER | settings), topic, membership)

    def group(self, name: str, topics: Collection[str], rebalance: Rebalance, instance: str) -> KafkaGroupConsumer:
        members = Members(f"laneway.{name}", f"laneway.{name}.{instance}", self._connection)
        settings = {"group.id": members.group, "group.instance.id": members.instance}
        return KafkaGroupConsumer(Consumer(self._connection | CONSUMER | GROUP | settings), topics, rebalance, members)

    def reader(self, *, committed_only: bool = False, hold_ms: int = HOLD_MS) -> KafkaReader:
        isolation = "read_committed" if committed_only else "read_uncommitted"
        settings = {"group.id": "laneway.readers", "isolation.level": isolation, "fetch.wait.max.ms": hold_ms}
        return KafkaReader(lambda: Consumer(self._connection | CONSUMER | settings))

    def committed(self, group: str, place: Place) -> Position | None:
        bystander = Consumer(self._connection | {"group.id": f"laneway.{group}"})
        try:
            [found] = asked(
                f"asking where {group} is in {place}",
                lambda: bystander.committed([TopicPartition(*place)], REQUEST_TIMEOUT_S),
            )
        finally:
            bystander.close()
        return Position(found.offset, found.metadata or "") if found.offset >= 0 else None

    def partitions(self, topic: str) -> int:
        client = KafkaProducer(self._connection)
        with errors(f"looking up topic {topic}"):
            found = client.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
        if found.error is not None:
            raise translated(found.error, f"looking up topic {topic}")
        return len(found.partitions)


class KafkaLogProducer:
    """librdkafka's idempotent producer may stand still for ever once a record has timed out, as when a broker restarts.
    All that it holds fails then too, and another client takes its place.
    """

    def __init__(self, connect: Callable[[], KafkaProducer]) -> None:
        self._connect = connect
        self._client = connect()
        self._timed_out = False
        self._failure: Exception | None = None

    def send(self, append: Append, delivered: Delivered | None = None) -> None:
        if self._timed_out:
            self._renew()
        client = self._client

        def report(error: KafkaError | None, _: Message) -> None:
            if error and error.code() == KafkaError._MSG_TIMED_OUT and client is self._client:
                self._timed_out = True
            failure = translated(error, f"delivering to {append.place.topic}") if error else None
            self._failure = self._failure or failure
            if delivered:
                delivered(failure)

        place = append.place
        while True:
            try:
                if append.headers:
                    headers = cast(Any, list(append.headers))
                    self._client.produce(
                        place.topic, append.value, append.key, place.partition, report, headers=headers
                    )
                else:  # no argument more than it takes: this is every token's way
                    self._client.produce(place.topic, append.value, append.key, place.partition, on_delivery=report)
                return
            except BufferError:
                self._client.poll(0.05)
            except KafkaException as raised:
                raise translated(raised.args[0], f"writing to {place.topic}") from raised

    def poll(self) -> None:
        self._client.poll(0)
        if self._timed_out:
            self._renew()

    def _renew(self) -> None:
        old, self._client, self._timed_out = self._client, self._connect(), False
        old.purge()
        old.flush(PURGED_S)

    def flush(self, timeout_s: float) -> None:
        left = self._client.flush(timeout_s)
        failure, self._failure = self._failure, None
        if left or failure:
            raise DeliveryFailed(f"{left} records not acknowledged after {timeout_s} s; first failure: {failure}")

    def close(self) -> None:
        self._client.flush(5.0)


class KafkaTransactions:
    """Opening it waits until transactions in flight of an earlier holder of the name are ended, and ends what is left.

    Around a broker's restart, positions of a transaction can reach the group after that transaction has ended. Nothing
    ends them then: `committed` of the group answers UNSTABLE_OFFSET_COMMIT for ever, to every later holder too. Only
    another end of a transaction of the same producer with this group clears them, so there is one at each opening.
    """

    def __init__(self, client: KafkaProducer, topic: str, bystander: object) -> None:
        """`topic` is one that the group reads, `bystander` the membership of a consumer that never joined it."""
        self._client = client
        with errors("taking over a transactional id"):
            client.init_transactions(REQUEST_TIMEOUT_S)
            client.begin_transaction()
            try:
                client.send_offsets_to_transaction([TopicPartition(topic, 0, 0)], bystander, REQUEST_TIMEOUT_S)
            except KafkaException as raised:
                if raised.args[0].code() not in STRANGER:
                    raise
            client.abort_transaction(REQUEST_TIMEOUT_S)

    def commit(
        self, appends: Iterable[Append], positions: Mapping[Place, Position], membership: object, timeout_s: float
    ) -> None:
        member = cast(KafkaMembership, membership)
        member.check(positions)
        with errors("committing a transaction"):
            self._client.begin_transaction()
            try:
                for append in appends:
                    place = append.place
                    headers = cast(Any, list(append.headers))
                    self._client.produce(place.topic, append.value, append.key, place.partition, headers=headers)
                    self._client.poll(0)
                self._client.send_offsets_to_transaction(partitions_of(positions), member.metadata, timeout_s)
                self._client.commit_transaction(timeout_s)
            except KafkaException as raised:
                if not raised.args[0].fatal():
                    self._client.abort_transaction(timeout_s)
                raise

    def close(self) -> None:
        self._client.flush(5.0)
