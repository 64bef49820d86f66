"""Who reads a reply, and what a reader is given: the words that the tail and those who use it share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from schemas.ids import ReplyId, reply_partition
from topics.catalog import REPLIES
from topics.errors import TopicsError
from topics.log import Place, Record

Source: TypeAlias = tuple[Place, bytes]


@dataclass(eq=False, slots=True)
class Subscription:
    """One reader of one reply. `live`: all that lay in the log before it is delivered; `held` waits for that."""

    reply: ReplyId
    live: bool = False
    closed: bool = False
    held: list[Record] = field(default_factory=list)

    @property
    def place(self) -> Place:
        return Place(REPLIES, reply_partition(self.reply))

    @property
    def source(self) -> Source:
        return self.place, self.reply.encode() + b"/"


@dataclass(frozen=True, slots=True)
class Delivery:
    """Records of one subscription. `live`: nothing older is missing. `failure`: the subscription has ended by it."""

    subscription: Subscription
    records: Sequence[Record]
    live: bool
    failure: TopicsError | None = None


Deliver = Callable[[Sequence[Delivery]], None]


def source_of(record: Record) -> Source:
    """Where a record comes from: its partition, and the reply in its key with the slash that follows."""
    reply, separator, _ = (record.key or b"").partition(b"/")
    return record.place, reply + separator
