"""The two kinds of reader on Kafka: one that reads what it is told to, and a member of a group."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from topics.errors import Fenced, TopicsError, Unavailable
from topics.kafka_errors import MISSING, REQUEST_TIMEOUT_S, asked, errors, translated
from topics.log import Headers, Place, Position, Rebalance, Record

LEAVE_S = 3.0

place_of = lru_cache(maxsize=4096)(Place)


class _Polling:
    """What both kinds of consumer share: batches without waiting for a full one, and positions past holes."""

    def __init__(self, client: Consumer) -> None:
        self._client = client
        self._ahead: dict[Place, int] = {}

    def poll(self, limit: int, timeout_s: float) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        while True:
            with errors("reading"):
                first = self._client.poll(max(0.0, deadline - time.monotonic()))
                rest = self._client.consume(limit - 1, 0) if first is not None and limit > 1 else []
            messages = [message for message in (first, *rest) if message is not None]  # an empty one is falsy
            records = [record for message in messages if (record := self._take(message))]
            if records or time.monotonic() >= deadline:
                return records

    def _take(self, message: Message) -> Record | None:
        place, offset = place_of(message.topic(), message.partition()), cast(int, message.offset())
        error = message.error()
        if error is None:
            self._ahead[place] = offset + 1
            found = message.headers() or ()  # most records have none; anybody's may be null
            headers = cast(Headers, tuple(header for header in found if header[1] is not None)) if found else ()
            return Record(place, offset, message.timestamp()[1], message.key(), message.value(), headers)
        if error.code() == KafkaError._PARTITION_EOF:
            self._ahead[place] = offset
            return None
        if error.code() in (KafkaError._MAX_POLL_EXCEEDED, *MISSING) or error.fatal():
            raise translated(error, "reading")
        return None  # librdkafka goes on by itself after every other error

    def close(self) -> None:
        self._client.close()


class KafkaReader(_Polling):
    """A broker answers a connection's questions one after the other, and may hold a fetch for long: what is asked while
    a place is followed goes by another connection.
    """

    def __init__(self, connect: Callable[[], Consumer]) -> None:
        super().__init__(connect())
        self._connect = connect
        self._aside: Consumer | None = None
        self._followed: set[Place] = set()

    def add(self, place: Place, offset: int) -> None:
        self._ahead[place] = offset
        self._followed.add(place)
        with errors(f"reading {place}"):
            self._client.incremental_assign([TopicPartition(*place, offset)])

    def remove(self, place: Place) -> None:
        self._followed.discard(place)
        with errors(f"leaving {place}"):
            self._client.incremental_unassign([TopicPartition(*place)])

    def position(self, place: Place) -> int:
        return self._ahead[place]

    def begin(self, place: Place) -> int:
        return self._watermarks(place)[0]

    def end(self, place: Place) -> int:
        return self._watermarks(place)[1]

    def offset_at(self, place: Place, timestamp_ms: int) -> int | None:
        wanted = TopicPartition(*place, max(timestamp_ms, 0))

        def ask() -> int:
            [found] = self._asker().offsets_for_times([wanted], REQUEST_TIMEOUT_S)
            if found.error is not None:
                raise KafkaException(found.error)
            return found.offset

        offset = asked(f"finding a time in {place}", ask)
        return offset if offset >= 0 else None

    def _watermarks(self, place: Place) -> tuple[int, int]:
        found = asked(
            f"asking for the ends of {place}",
            lambda: self._asker().get_watermark_offsets(TopicPartition(*place), REQUEST_TIMEOUT_S),
        )
        if found is None:
            raise Unavailable(f"asking for the ends of {place}: no answer in {REQUEST_TIMEOUT_S} s")
        return found

    def _asker(self) -> Consumer:
        if not self._followed:
            return self._client
        self._aside = self._aside or self._connect()
        return self._aside

    def close(self) -> None:
        super().close()
        if self._aside:
            self._aside.close()


@dataclass(frozen=True)
class KafkaMembership:
    """A member's generation, for the coordinator, and its places, for us: the coordinator looks at members only."""

    metadata: object
    held: frozenset[Place]

    def check(self, places: Iterable[Place]) -> None:
        """Raises Fenced for a place that is not this member's."""
        check_held(places, self.held)


@dataclass(frozen=True)
class Members:
    """A group as one of its members sees it, by the connection of `settings`."""

    group: str
    instance: str
    settings: Mapping[str, Any]

    def others(self) -> bool:
        """Whether somebody else is in it; no, when the cluster does not answer."""
        admin = AdminClient(dict(self.settings))
        [asked] = admin.describe_consumer_groups([self.group], request_timeout=LEAVE_S).values()
        try:
            return any(member.group_instance_id != self.instance for member in asked.result(LEAVE_S).members)
        except (KafkaException, TimeoutError):
            return False


class KafkaGroupConsumer(_Polling):
    def __init__(self, client: Consumer, topics: Collection[str], rebalance: Rebalance, members: Members) -> None:
        super().__init__(client)
        self._rebalance, self._members = rebalance, members
        self._held: set[Place] = set()
        self._failure: TopicsError | None = None
        self._on_hold = False
        with errors(f"joining the readers of {', '.join(topics)}"):
            client.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def poll(self, limit: int, timeout_s: float) -> list[Record]:
        records = super().poll(limit, timeout_s)
        failure, self._failure = self._failure, None
        if failure:
            raise failure  # an exception in a librdkafka callback would be lost
        return records

    def hold(self, on: bool) -> None:
        self._on_hold = on
        places = [TopicPartition(*place) for place in self._held]
        with errors("holding a group's partitions"):
            (self._client.pause if on else self._client.resume)(places)

    def committed(self, places: Collection[Place]) -> dict[Place, Position]:
        wanted = [TopicPartition(*place) for place in places]
        found = asked("asking for committed positions", lambda: self._client.committed(wanted, REQUEST_TIMEOUT_S))
        return {Place(p.topic, p.partition): Position(p.offset, p.metadata or "") for p in found if p.offset >= 0}

    def commit(self, positions: Mapping[Place, Position]) -> None:
        check_held(positions, self._held)
        if positions:
            with errors("committing positions"):
                self._client.commit(offsets=partitions_of(positions), asynchronous=False)

    def close(self) -> None:
        """Somebody else who is in the group gets this member's places at once. One that is alone keeps its name in it
        until its session ends: its next start then takes its places back without a rebalance.
        """
        try:
            if self._members.others():
                self._leave()
        finally:
            super().close()
        if self._failure:
            raise self._failure

    def _leave(self) -> None:
        """librdkafka tells the group nothing when a named member closes, but does when it unsubscribes; it has told
        it, and waits for the answer in its close, when the member's id is gone.
        """
        deadline = time.monotonic() + LEAVE_S
        with errors("leaving a group"):
            self._client.unsubscribe()
            while self._client.memberid() and time.monotonic() < deadline:
                self._client.poll(0.02)

    def membership(self) -> KafkaMembership:
        return KafkaMembership(self._client.consumer_group_metadata(), frozenset(self._held))

    def _assigned(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        places = [Place(p.topic, p.partition) for p in partitions]
        self._held.update(places)
        try:
            starts = self._rebalance.assigned(places)
        except TopicsError as error:
            self._failure, starts = error, {}
        client.assign([TopicPartition(*p, starts[p]) if p in starts else TopicPartition(*p) for p in places])
        if self._on_hold:
            client.pause([TopicPartition(*p) for p in places])

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


def check_held(places: Iterable[Place], held: Set[Place]) -> None:
    if foreign := sorted(set(places) - held):
        raise Fenced(f"committing positions: {', '.join(map(str, foreign))} belong to another member")


def partitions_of(positions: Mapping[Place, Position]) -> list[TopicPartition]:
    return [TopicPartition(*place, position.offset, position.metadata) for place, position in positions.items()]
