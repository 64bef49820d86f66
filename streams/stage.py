"""What a stage is to the runner: decoded records in, a Decision out, and no I/O in between.

A stage may be asked the same again after a crash (the records since the last commit are replayed), so a decision
follows from state and record alone: time is the record's timestamp, ids derive from the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from schemas.events import Origin
from schemas.ids import ConversationId, MessageId, ReplyId, UserId
from topics.log import Place, Position
from topics.outputs import Output, Written, reply_of_key


@dataclass(frozen=True, slots=True)
class Message:
    """One decoded record, of `size` bytes. `at_ms` is the broker's time of its append: the only clock a stage has.
    `written`: by whom, where a producer's repeat is to be known for one.
    """

    place: Place
    offset: int
    at_ms: int
    key: bytes | None
    event: Any
    size: int = 0
    written: Written | None = None

    @property
    def reply(self) -> ReplyId | None:
        """The reply that a record of `replies` belongs to."""
        return reply_of_key(self.key)


@dataclass(frozen=True, slots=True)
class HistoryWanted:
    """Intake asks its shell to read a conversation and append what the store holds as HistoryLoaded: of the branch that
    ends in `leaf`, None for the newest message. A store that has not heard of the deletion at `deleted_ms` yet, 0 if
    there was none, is not to be believed.
    """

    user: UserId
    conversation: ConversationId
    leaf: MessageId | None = None
    deleted_ms: int = 0


@dataclass(frozen=True, slots=True)
class ContinuationWanted:
    """The supervisor asks its shell to fetch the request at `origin` and queue it as `attempt`, from `accepted` on."""

    reply: ReplyId
    attempt: int
    origin: Origin
    accepted: bytes


Wanted: TypeAlias = HistoryWanted | ContinuationWanted


@dataclass(frozen=True, slots=True)
class Decision:
    """What a record leads to. `first` is acknowledged before `then` leaves; `committed` becomes visible together
    with the offsets that cover it, exactly once; `wanted` is read by the shell, its answer comes back as a record;
    `projected` is durable in the shell's projection before the offsets that cover it are committed."""

    first: tuple[Output, ...] = ()
    then: tuple[Output, ...] = ()
    committed: tuple[Output, ...] = ()
    wanted: tuple[Wanted, ...] = ()
    projected: tuple[Message, ...] = ()


NOTHING = Decision()


@dataclass(frozen=True, slots=True)
class Queue:
    """How many requests wait, and the log time since which the oldest does; 0 for an empty one."""

    requests: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a stage holds, for those who watch it: queues by tier, living replicas by state; None: it knows of
    none. `pool` is theirs."""

    queues: Mapping[str, Queue] = field(default_factory=dict)
    replicas: Mapping[str, int] | None = None
    pool: str = ""


BLANK = Snapshot()


class Stage:
    """A stage over the partitions of `inputs` that this process was given, and all of `broadcast`.

    A stage with a `changelog` keeps state: `changes` are appended to it in the transaction that commits the offsets.
    """

    name: str
    inputs: tuple[str, ...]
    broadcast: tuple[str, ...] = ()
    changelog: str | None = None
    transactional: bool = False
    keeps_dead_letters: bool = True
    waits_to_catch_up: bool = False

    def apply(self, message: Message) -> Decision:
        """Decides one record and takes it into the state."""
        raise NotImplementedError

    def refused(self, message: Message) -> Decision:
        """What tells the reply of a record that could not be decided; `message.event` is None if not decoded."""
        return NOTHING

    def assigned(self, place: Place, committed: Position | None) -> int | None:
        """A partition has come. Returns the offset to start at; None starts where the group has committed."""
        return None

    def restore(self, place: Place, key: bytes, event: Any) -> None:
        """Takes one record of the changelog, None for a tombstone, back into the state of the input `place`."""

    def restored(self, place: Place) -> Decision:
        """The state of `place` is whole again: what has to be asked for once more."""
        return NOTHING

    def caught_up(self, place: Place) -> None:
        """All that lay in `place` when it came was applied; told to a stage that `waits_to_catch_up`."""

    def revoked(self, place: Place) -> None:
        """Forgets all state of a partition that has gone."""

    def position(self, place: Place, offset: int) -> Position:
        """What to commit when all before `offset` was applied."""
        return Position(offset)

    def changes(self) -> Iterable[Output]:
        """The state that has changed since the last call, as records of the changelog."""
        return ()

    def snapshot(self) -> Snapshot:
        """What it holds now; asked a few times a second, and nothing is decided by it."""
        return BLANK

    def ticks(self, now: float) -> Iterable[Output]:
        """Records by which a stage that waits for log time to pass keeps it going; asked at every step.

        `now` is in seconds and says how long ago something was sent, never what is decided.
        """
        return ()
