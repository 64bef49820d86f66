"""What stages keep of their state in changelogs, so that a restart goes on from there."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.events import ClientKey, MessagePosted, Origin, Turn
from schemas.ids import ConversationId, Incarnation, MessageId, ReplyId, UserId
from schemas.reply_records import Accepted, Finished, ListenerAttached


@dataclass(frozen=True, slots=True)
class ParkedMessage:
    """A message that waits for its history or for the reply before it, since the log time `since_ms`."""

    message: MessagePosted
    since_ms: int


@dataclass(frozen=True, slots=True)
class ConversationKept:
    """Intake's state of one conversation as its changelog holds it. `loading`: the store's answer is awaited.

    `turns` are those of the branch that ends in `branch`, or will be when they are loaded; `dropped`: they are not at
    hand. `leaf` is the message that the conversation goes on from; None while there is none, or it is not known.
    `used` orders conversations by when they were last touched: the record's offset, and which touch within it.
    `deleted_ms`: when it was last deleted; all that is said in it is said later.
    """

    user: UserId
    conversation: ConversationId
    touched_ms: int
    loading: bool
    turns: tuple[Turn, ...]
    keys: tuple[ClientKey, ...]
    open_reply: ReplyId | None
    parked: tuple[ParkedMessage, ...]
    deleted_ms: int = 0
    leaf: MessageId | None = None
    branch: MessageId | None = None
    system: str = ""
    dropped: bool = False
    used: int = 0


@dataclass(frozen=True, slots=True)
class Addressee:
    """A replica that was given an attempt."""

    attempt: int
    replica: str
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class WriterKept:
    """The newest number of a writer's records in a partition of `messages`, and when it came."""

    name: str
    number: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class WritersKept:
    """Intake's state of a partition's writers, the longest silent first."""

    writers: tuple[WriterKept, ...]


@dataclass(frozen=True, slots=True)
class ReplyKept:
    """The supervisor's state of one reply: all records of it up to `offset` are in it.

    `ids` are its accepted tokens; of an ended one only the times and the attempt are kept.
    """

    reply: ReplyId
    offset: int
    first_offset: int
    accepted_ms: int
    ended_ms: int | None
    state: str
    attempt: int
    accepted: Accepted | None
    owner: Incarnation | None
    ids: bytes
    cleared: int
    finished: Finished | None
    request: Origin | None
    addressees: tuple[Addressee, ...]
    listeners: tuple[ListenerAttached, ...]
    attached_offset: int
