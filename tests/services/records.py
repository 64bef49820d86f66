"""The raw log of a running stack, read from its beginning by a client of its own: the truth that tests compare with."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from schemas.codec import Codec, CodecError
from schemas.events import (
    DeadLettered,
    GenerateRequested,
    MessagePosted,
    Origin,
    ReplySettled,
    TurnSaved,
    UsageRecorded,
)
from schemas.ids import ReplyId
from schemas.reply import MOVES, Reply
from topics.catalog import DEAD_LETTERS, MESSAGES, REPLIES, TIERS, TURNS, USAGE, Sizes, catalog, generate_topic
from topics.config import KafkaConfig
from topics.kafka import KafkaLog
from topics.kafka_errors import asked
from topics.log import Append, Place, Reader, Record
from topics.outputs import reply_of_key

T = TypeVar("T")

PATIENCE_S = 60.0
PARTITIONS = {topic.name: topic.partitions for topic in catalog(Sizes())}


class Records:
    """Each topic is read on from where it was read to before, so asking again is cheap."""

    def __init__(self, kafka: str) -> None:
        self._kafka, self._log = kafka, KafkaLog(KafkaConfig(kafka=kafka))
        self._admin = AdminClient({"bootstrap.servers": kafka})
        self._producer = self._log.producer()
        self._codec = Codec()
        self._readers: dict[str, Reader] = {}
        self._seen: dict[str, list[tuple[Record, Any]]] = {}

    def __enter__(self) -> Self:
        """Reads what is there already, so that what a test asks in the middle of its replies is answered soon."""
        self.read(MESSAGES)
        self.read(REPLIES)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for reader in self._readers.values():
            reader.close()
        self._producer.close()

    def read(self, topic: str) -> list[tuple[Record, Any]]:
        """All committed records of a topic with their events, None for what is none, up to its end as it is now."""
        ends = self.ends(topic)
        if topic not in self._readers:
            self._readers[topic] = self._log.reader(committed_only=True)
            for partition in ends:
                self._readers[topic].add(Place(topic, partition), 0)
        reader, found = self._readers[topic], self._seen.setdefault(topic, [])
        deadline = time.monotonic() + PATIENCE_S
        while any(reader.position(Place(topic, partition)) < end for partition, end in ends.items()):
            assert time.monotonic() < deadline, f"{topic} cannot be read to its end"
            found += [(record, self._decoded(record)) for record in reader.poll(10_000, 0.05)]
        return found

    def events(self, topic: str, kind: type[T], since: Mapping[int, int] | None = None) -> list[T]:
        """The records of one type, of all or from the given offset of each partition on."""
        start = since or dict.fromkeys(range(PARTITIONS[topic]), 0)
        return [
            event
            for record, event in self.read(topic)
            if isinstance(event, kind) and record.offset >= start[record.place.partition]
        ]

    def ends(self, topic: str) -> dict[int, int]:
        """Where each partition ends; asked anew of a leader that has started again since it was asked last."""
        places = [TopicPartition(topic, partition) for partition in range(PARTITIONS[topic])]

        def ask() -> dict[int, int]:
            answers = self._admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()), request_timeout=PATIENCE_S)
            try:
                return {place.partition: answer.result().offset for place, answer in answers.items()}
            except KafkaException:
                self._admin = AdminClient({"bootstrap.servers": self._kafka})  # it remembers the leader's last epoch
                raise

        return asked(f"asking for the ends of {topic}", ask)

    def posted(self, since: Mapping[int, int] | None = None) -> list[MessagePosted]:
        return self.events(MESSAGES, MessagePosted, since)

    def settled(self, reply: ReplyId) -> list[ReplySettled]:
        return [event for event in self.events(MESSAGES, ReplySettled) if event.reply == reply]

    def requests(self, reply: ReplyId) -> list[GenerateRequested]:
        """Every request for the reply, of whatever attempt."""
        topics = [generate_topic("main", tier) for tier in TIERS]
        return [event for topic in topics for event in self.events(topic, GenerateRequested) if event.reply == reply]

    def turns(self) -> list[TurnSaved]:
        return self.events(TURNS, TurnSaved)

    def usage(self) -> list[UsageRecorded]:
        return self.events(USAGE, UsageRecorded)

    def dead_letters(self) -> list[DeadLettered]:
        return self.events(DEAD_LETTERS, DeadLettered)

    def replies(self) -> dict[ReplyId, Reply]:
        """Every reply, folded."""
        folded: dict[ReplyId, Reply] = {}
        for record, event in self.read(REPLIES):
            name = reply_of_key(record.key)
            if name is not None and type(event) in MOVES:
                folded.setdefault(name, Reply(name)).apply(record.offset, event)
        return folded

    def append(self, topic: str, key: bytes, *values: bytes | None) -> list[Origin]:
        """Writes records to partition 0; returns where they lie."""
        end, place = self.ends(topic)[0], Place(topic, 0)
        for value in values:
            self._producer.send(Append(place, key, value))
        self._producer.flush(PATIENCE_S)
        appended = [record for record, _ in self.read(topic) if record.place == place and record.offset >= end]
        return [Origin(*place, next(r.offset for r in appended if r.key == key and r.value == v)) for v in values]

    def encoded(self, event: object) -> bytes:
        return self._codec.encode(event)

    def _decoded(self, record: Record) -> Any:
        try:
            return self._codec.decode(record.value)
        except CodecError:
            return None


def balanced(log: Records) -> bool:
    """Whether every accepted reply has ended, with one usage record and, if it is stored, one turn, both of the log's
    tokens.

    False while something is on its way; fails when something is there that can never be right again.
    """
    accepted = {name: reply for name, reply in log.replies().items() if reply.accepted is not None}
    used = Counter(usage.reply for usage in log.usage())
    assert max(used.values(), default=0) <= 1, used.most_common(3)
    counts = {usage.reply: (usage.state, usage.completion_tokens) for usage in log.usage()}
    texts: defaultdict[ReplyId, set[str]] = defaultdict(set)
    for saved in log.turns():
        if saved.turn.role == "assistant":
            texts[saved.reply].add(saved.turn.text)
    stored = {name for name, reply in accepted.items() if reply.accepted and reply.accepted.stored}
    if any(not reply.state.ended or name not in counts for name, reply in accepted.items()) or stored - texts.keys():
        return False
    for name, reply in accepted.items():
        assert counts[name] == (reply.state.value.lower(), len(reply.ids)), name
        assert texts[name] == ({reply.text} if name in stored else set()), name
    return True
