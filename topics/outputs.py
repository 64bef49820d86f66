"""Where an event goes: pure stages return Outputs made by `Routes`, a shell turns each into an Append by `Encoder`.

Invariant: an output's place follows from the event and the catalog's sizes alone, so a replay writes it there again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

from schemas.codec import Codec
from schemas.events import (
    ConversationDeleted,
    ConversationRenamed,
    GenerateAssigned,
    GenerateRequested,
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
from schemas.reply import Record as ReplyRecord
from topics import catalog
from topics.log import Append, Place


@dataclass(frozen=True, slots=True)
class Output:
    """An event and its place; `event` None is a tombstone for `key`."""

    place: Place
    key: str
    event: Any


@dataclass(frozen=True)
class Routes:
    """Places of events in a cell of `sizes`. A place that the cell does not have raises ValueError."""

    sizes: catalog.Sizes

    def has(self, reply: ReplyId) -> bool:
        """Whether the text is a reply id, its MAC not checked, with a partition that this cell has."""
        return has_reply_id_form(reply) and reply_partition(reply) < self.sizes.replies

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
        return Output(Place(catalog.generate_topic(request.pool, request.tier), 0), request.reply, request)

    def lane(self, slot: int, assigned: GenerateAssigned) -> Output:
        request = assigned.request
        return Output(Place(catalog.lane_topic(request.pool, request.tier), slot), request.reply, assigned)

    def command(self, pool: str, slot: int, command: object) -> Output:
        if pool not in self.sizes.pools or not 0 <= slot < self.sizes.slots:
            raise ValueError(f"no replica {pool}/{slot} in pools {self.sizes.pools} of {self.sizes.slots} slots")
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


class Encoder:
    """Outputs to bytes. Keys in `replies` get the writer and its sequence, so that compaction merges no two records."""

    def __init__(self, codec: Codec, sizes: catalog.Sizes, writer: Incarnation) -> None:
        self._codec = codec
        self._confluent = {topic.name for topic in catalog.catalog(sizes) if topic.confluent}
        self._writer = writer
        self._sequence = count()

    def append(self, output: Output) -> Append:
        key = output.key
        if output.place.topic == catalog.REPLIES:
            key = f"{key}/{self._writer}/{next(self._sequence)}"
        if output.event is None:
            return Append(output.place, key.encode(), None)
        confluent = output.place.topic in self._confluent
        value = self._codec.encode_confluent(output.event) if confluent else self._codec.encode(output.event)
        return Append(output.place, key.encode(), value)


def reply_of_key(key: bytes | None) -> ReplyId | None:
    """The reply that a record of `replies` belongs to; None if the key has not the form `reply/writer/sequence`."""
    reply, separator, _ = (key or b"").partition(b"/")
    return ReplyId(reply.decode("ascii", "replace")) if separator else None
