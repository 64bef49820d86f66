"""Where an event goes: pure stages return Outputs made by `Routes`, a shell turns each into an Append by `Encoder`.

Invariant: an output's place follows from the event and the catalog's sizes alone, so a replay writes it there again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple

from schemas.codec import Codec
from schemas.events import (
    ConversationDeleted,
    ConversationRenamed,
    DeadLettered,
    GenerateAssigned,
    GenerateRequested,
    MessagePosted,
    TurnSaved,
    UsageRecorded,
)
from schemas.ids import (
    ConversationId,
    Incarnation,
    ReplyId,
    UserId,
    has_reply_id_form,
    partition_of,
    reply_partition,
)
from schemas.quota_records import LimitSet, PlansLoaded, UsageAsked
from schemas.reply import Record as ReplyRecord
from topics import catalog
from topics.log import Append, Headers, Place

FRAME_BYTES = 512
LETTER_KEY_BYTES = 64 * 1024
LETTER_VALUE_BYTES = catalog.LARGEST_RECORD - 1024 * 1024
LETTER_ERROR_CHARACTERS = 16 * 1024
# What edges and commands write. A producer that was not told of its arrival may send it twice: it is decided once.
ONCE = (MessagePosted, ConversationRenamed, ConversationDeleted, PlansLoaded, LimitSet, UsageAsked)
WRITTEN = "laneway-written"
LONGEST_WRITER = 128


@dataclass(frozen=True, slots=True)
class Output:
    """An event and its place; `event` None is a tombstone for `key`."""

    place: Place
    key: str
    event: Any


class Written(NamedTuple):
    writer: str
    number: int


@dataclass(frozen=True)
class Routes:
    """Places of events in a cell of `sizes`. A place that the cell does not have raises ValueError."""

    sizes: catalog.Sizes

    def has(self, reply: ReplyId) -> bool:
        """Whether the text is a reply id, its MAC not checked, with a partition that this cell has."""
        return has_reply_id_form(reply) and reply_partition(reply) < self.sizes.replies

    def has_replica(self, pool: str, slot: int) -> bool:
        return pool in self.sizes.pools and 0 <= slot < self.sizes.slots

    def has_backlog(self, topic: str, partition: int) -> bool:
        """Whether requests lie there before they are dispatched."""
        topics = (catalog.generate_topic(pool, tier) for pool in self.sizes.pools for tier in catalog.TIERS)
        return partition == 0 and topic in topics

    def of_user(self, user: UserId) -> int:
        """The partition of a user in `messages`, `turns`, `usage` and `intake-state`."""
        return partition_of(user, self.sizes.users)

    def reply(self, reply: ReplyId, record: ReplyRecord) -> Output:
        partition = reply_partition(reply)
        if partition >= self.sizes.replies:
            raise ValueError(f"{reply} lies in partition {partition} of {self.sizes.replies}")
        return Output(Place(catalog.REPLIES, partition), reply, record)

    def message(self, user: UserId, event: object) -> Output:
        return Output(Place(catalog.MESSAGES, self.of_user(user)), user, event)

    def generate(self, request: GenerateRequested) -> Output:
        topic = catalog.generate_topic(request.pool, request.tier)
        if not self.has_backlog(topic, 0):
            raise ValueError(f"no backlog {topic} in pools {self.sizes.pools} of tiers {catalog.TIERS}")
        return Output(Place(topic, 0), request.reply, request)

    def lane(self, slot: int, assigned: GenerateAssigned) -> Output:
        request = assigned.request
        self._check_replica(request.pool, slot)
        return Output(Place(catalog.lane_topic(request.pool, request.tier), slot), request.reply, assigned)

    def command(self, pool: str, slot: int, command: object) -> Output:
        self._check_replica(pool, slot)
        return Output(Place(catalog.commands_topic(pool), slot), str(slot), command)

    def replica_beat(self, key: str, beat: object) -> Output:
        return Output(Place(catalog.REPLICAS, 0), key, beat)

    def edge_beat(self, key: str, beat: object) -> Output:
        return Output(Place(catalog.EDGES, 0), key, beat)

    def turn(self, saved: TurnSaved) -> Output:
        key = f"{saved.user}/{saved.conversation}/{saved.turn.message}"
        return Output(Place(catalog.TURNS, self.of_user(saved.user)), key, saved)

    def conversation(self, changed: ConversationRenamed | ConversationDeleted) -> Output:
        """What becomes of a whole conversation, among its turns."""
        return Output(
            Place(catalog.TURNS, self.of_user(changed.user)), f"{changed.user}/{changed.conversation}", changed
        )

    def usage(self, recorded: UsageRecorded) -> Output:
        return Output(Place(catalog.USAGE, self.of_user(recorded.user)), recorded.reply, recorded)

    def intake_state(self, user: UserId, conversation: ConversationId, kept: object) -> Output:
        return Output(Place(catalog.INTAKE_STATE, self.of_user(user)), f"{user}/{conversation}", kept)

    def supervisor_state(self, reply: ReplyId, kept: object) -> Output:
        return Output(Place(catalog.SUPERVISOR_STATE, reply_partition(reply)), reply, kept)

    def _check_replica(self, pool: str, slot: int) -> None:
        if not self.has_replica(pool, slot):
            raise ValueError(f"no replica {pool}/{slot} in pools {self.sizes.pools} of {self.sizes.slots} slots")


class Encoder:
    """Outputs to bytes. Keys in `replies` get the writer and its sequence, so that compaction merges no two records; in
    `messages` a header has them, for who decides each record once. They are for sending at once, in this order.

    Raises ValueError for what cannot be written: a field that does not fit its type, a record too large for its topic.
    """

    def __init__(self, codec: Codec, sizes: catalog.Sizes, writer: Incarnation) -> None:
        self._codec = codec
        self._topics = {topic.name: topic for topic in catalog.catalog(sizes)}
        self._writer = writer
        self._sequence = count()

    def append(self, output: Output) -> Append:
        key = output.key
        headers: Headers = ()
        if output.place.topic == catalog.REPLIES:
            key = f"{key}/{self._writer}/{next(self._sequence)}"
        elif output.place.topic == catalog.MESSAGES and isinstance(output.event, ONCE):
            headers = ((WRITTEN, f"{self._writer}/{next(self._sequence)}".encode()),)
        if output.event is None:
            return Append(output.place, key.encode(), None)
        topic = self._topics[output.place.topic]
        value = self._codec.encode_confluent(output.event) if topic.confluent else self._codec.encode(output.event)
        if len(key.encode()) + len(value) > topic.largest_record - FRAME_BYTES:
            kind = type(output.event).__name__
            raise ValueError(f"{kind} of {len(value)} bytes: {topic.name} takes {topic.largest_record}")
        return Append(output.place, key.encode(), value, headers)


def dead_letter(letter: DeadLettered) -> Output:
    """A letter on its way, of at most 64 KiB of the record's key and 7 MiB of its value, so that it always fits.

    What was cut is said in the error; the whole record lies where `origin` says.
    """
    key, cut_key = _cut(letter.key, LETTER_KEY_BYTES)
    value, cut_value = _cut(letter.value, LETTER_VALUE_BYTES)
    error = letter.error[:LETTER_ERROR_CHARACTERS]
    if cut_key or cut_value:
        error += f"; {cut_key} bytes of the key and {cut_value} of the value are not in this letter"
    return Output(
        Place(catalog.DEAD_LETTERS, 0), letter.origin.topic, replace(letter, key=key, value=value, error=error)
    )


def _cut(given: bytes | None, most: int) -> tuple[bytes | None, int]:
    return (given, 0) if given is None else (given[:most], max(0, len(given) - most))


def reply_of_key(key: bytes | None) -> ReplyId | None:
    """The reply that a record of `replies` belongs to; None if the key has not the form `reply/writer/sequence`."""
    reply, separator, _ = (key or b"").partition(b"/")
    return ReplyId(reply.decode("ascii", "replace")) if separator else None


def written(headers: Headers) -> Written | None:
    """Who wrote a record of `messages`, and its number, which grows; None where that is not said as it should be."""
    writer, _, number = dict(headers).get(WRITTEN, b"").decode("ascii", "replace").rpartition("/")
    usual = 0 < len(writer) <= LONGEST_WRITER and number.isdecimal() and number.isascii() and len(number) < 18
    return Written(writer, int(number)) if usual else None
