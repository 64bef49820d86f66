"""The log as the rest of Laneway sees it: plain records in, plain records out, no Kafka type in any signature.

Two implementations keep this contract: `topics/kafka.py` on a real cluster and `topics/memory.py` in one process;
`tests/contract/` runs the same suite on both. Every client is used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Place(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


HOLD_MS = 500  # a reader that keeps its places asks an idle broker seldom
BRIEFLY_MS = 5  # one that reads what lies there, and leaves, waits for nothing
Headers = tuple[tuple[str, bytes], ...]


class Record(NamedTuple):
    """A record that was read, made for every token. `timestamp_ms` is the broker's time of its append."""

    place: Place
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Append:
    """A record to be written; `value` None is a tombstone. `headers`: who wrote it, and its trace."""

    place: Place
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Position:
    """A committed position: the next offset to read, and the committer's own words beside it."""

    offset: int
    metadata: str = ""


Delivered = Callable[[Exception | None], None]


class Producer(Protocol):
    """An idempotent producer: per partition, records land in the order of `send`, each once, or not at all."""

    def send(self, append: Append, delivered: Delivered | None = None) -> None:
        """Queues one record; waits while the queue is full. `delivered` is called from `poll` or `flush`."""

    def poll(self) -> None:
        """Calls the callbacks of what was acknowledged or has failed since."""

    def flush(self, timeout_s: float) -> None:
        """Waits until all is acknowledged. Raises DeliveryFailed if anything sent since the last flush was not."""

    def close(self) -> None: ...


class Rebalance(Protocol):
    """What a group member does when partitions come and go. Called from within `GroupConsumer.poll`."""

    def assigned(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Where to start reading each place that has come; a place left out starts at its committed offset."""

    def revoked(self, places: Collection[Place]) -> None:
        """The places still belong to this member, for the last time: commit."""

    def lost(self, places: Collection[Place]) -> None:
        """The places belong to somebody else already: drop all about them, commit nothing."""


class GroupConsumer(Protocol):
    """A member of a consumer group, read_committed: the group's partitions are spread over its members."""

    def poll(self, limit: int, timeout_s: float) -> list[Record]:
        """Up to `limit` records; returns as soon as there is one, or empty after `timeout_s`."""

    def hold(self, on: bool) -> None:
        """While on, `poll` gives nothing, and keeps this member in the group; what is read goes on where it was."""

    def committed(self, places: Collection[Place]) -> dict[Place, Position]:
        """The group's committed positions; places without one are left out."""

    def commit(self, positions: Mapping[Place, Position]) -> None:
        """Commits and waits. Raises Fenced when this member no longer owns a place."""

    def membership(self) -> object:
        """Proves to a transaction which places this member holds. Asked between polls, by the consumer's own thread."""

    def close(self) -> None:
        """Leaves the group; calls `Rebalance.revoked` for what it still holds."""


class Transactions(Protocol):
    """The one transactional producer of a process. Opening it fences every earlier holder of the same id."""

    def commit(
        self, appends: Iterable[Append], positions: Mapping[Place, Position], membership: object, timeout_s: float
    ) -> None:
        """Appends, and commits positions for a member of a group, all or nothing. Raises Fenced or Unavailable."""

    def close(self) -> None: ...


class Reader(Protocol):
    """Reads the places it is told to, in no group, read_uncommitted unless opened otherwise."""

    def add(self, place: Place, offset: int) -> None:
        """Reads `place` from `offset` on; an offset that has expired means the oldest one left."""

    def remove(self, place: Place) -> None: ...

    def poll(self, limit: int, timeout_s: float) -> list[Record]: ...

    def position(self, place: Place) -> int:
        """The next offset to be returned. At the end of a partition it equals `end`, even if records are missing."""

    def begin(self, place: Place) -> int:
        """The oldest offset left."""

    def end(self, place: Place) -> int:
        """One past the newest offset."""

    def offset_at(self, place: Place, timestamp_ms: int) -> int | None:
        """The first offset whose timestamp is not before `timestamp_ms`; None if there is none yet."""

    def close(self) -> None: ...


class Log(Protocol):
    """A factory of clients for one cluster."""

    def producer(self, delivery_timeout_s: float = 10.0) -> Producer: ...

    def transactions(self, group: str, topic: str, instance: str) -> Transactions:
        """For the member of that name of a group that reads `topic`, which exists; positions that an earlier one left
        undecided are ended."""

    def group(self, name: str, topics: Collection[str], rebalance: Rebalance, instance: str) -> GroupConsumer:
        """`instance` is the member's fixed name: a restart under it takes its partitions back at once."""

    def reader(self, *, committed_only: bool = False, hold_ms: int = HOLD_MS) -> Reader:
        """`hold_ms`: how long a broker may hold a question for records that are not there yet. A place that is added
        waits for the answer to the question before, and so does the news that a place has been read to its end."""

    def committed(self, group: str, place: Place) -> Position | None:
        """The position in a place that a group's members have committed, whoever asks; None if none has."""

    def partitions(self, topic: str) -> int:
        """How many partitions `topic` has. Raises Unavailable, or TopicMismatch if it does not exist."""
