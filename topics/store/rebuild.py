"""The store and the log it is a projection of: built anew from `turns`, and compared with it, turn by turn.

In: the log, a store. Out: what was read, and where the two differ. A rebuild saves what is there already once more, so
history may run beside it. What `turns` no longer keeps can neither be built nor compared.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from schemas.codec import CodecError
from schemas.events import ConversationDeleted, ConversationRenamed, TurnSaved
from schemas.ids import ConversationId, MessageId, UserId
from topics.catalog import TURNS
from topics.log import BRIEFLY_MS, Log, Place, Record
from topics.schemas import Decoder
from topics.store.contract import SavedAt, Store, check_savable, posted_ms
from topics.store.sqlite import SqliteStore

BATCH = 500
POLL_S = 1.0
PAGE = 200

Progress = Callable[[int], None]


@dataclass(slots=True)
class Read:
    """What was read of `turns`: records in all, those for the store, and those that nobody could read."""

    records: int = 0
    saved: int = 0
    bad: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """One message, or a whole conversation, that the store has otherwise than the log."""

    user: UserId
    conversation: ConversationId
    message: MessageId | None
    what: str

    def __str__(self) -> str:
        return f"{self.user} / {self.conversation}{f' / {self.message}' if self.message else ''}: {self.what}"


@dataclass(frozen=True)
class Turns:
    """The topic `turns` as it is now: what is appended later is not read."""

    log: Log
    decoder: Decoder

    def count(self) -> int:
        """How many offsets there are to read."""
        with closing(self.log.reader(committed_only=True)) as reader:
            return sum(reader.end(place) - reader.begin(place) for place in self.places())

    def places(self) -> list[Place]:
        return [Place(TURNS, number) for number in range(self.log.partitions(TURNS))]

    def read(self, place: Place, seen: Read, progress: Progress) -> Iterator[list[SavedAt]]:
        """One partition, some records at a time."""
        with closing(self.log.reader(committed_only=True, hold_ms=BRIEFLY_MS)) as reader:
            at, end = reader.begin(place), reader.end(place)
            reader.add(place, at)
            while at < end:
                records = reader.poll(BATCH, POLL_S)
                yield [saved for record in records if record.offset < end and (saved := self._saved(record, seen))]
                position = min(reader.position(place), end)
                progress(position - at)
                at = position

    def _saved(self, record: Record, seen: Read) -> SavedAt | None:
        seen.records += 1
        try:
            event = self.decoder.decode(record.value) if record.value is not None else None
        except CodecError:
            seen.bad += 1
            return None
        if not isinstance(event, TurnSaved | ConversationRenamed | ConversationDeleted):
            return None
        try:
            check_savable(event)
        except ValueError:
            seen.bad += 1
            return None
        seen.saved += 1
        return SavedAt(record.offset, event)


def rebuild(turns: Turns, store: Store, progress: Progress = lambda _: None) -> Read:
    """Saves all that `turns` holds. Raises Unavailable; to be run again then."""
    seen = Read()
    for place in turns.places():
        for batch in turns.read(place, seen, progress):
            store.save(batch)
    return seen


def verify(turns: Turns, store: Store, progress: Progress = lambda _: None) -> tuple[Read, list[Difference]]:
    """Builds each partition in a file of its own and compares what comes of it. Raises Unavailable."""
    seen, found = Read(), list[Difference]()
    for place in turns.places():
        with (
            tempfile.TemporaryDirectory() as folder,
            closing(SqliteStore(Path(folder) / "turns")) as expected,
        ):
            keys: set[tuple[UserId, ConversationId]] = set()
            for batch in turns.read(place, seen, progress):
                expected.save(batch)
                keys.update((record.saved.user, record.saved.conversation) for record in batch)
            for key in sorted(keys):
                found += compared(expected, store, *key)
    return seen, found


def compared(expected: Store, store: Store, user: UserId, conversation: ConversationId) -> Iterator[Difference]:
    """Where a conversation differs; the store may hold older turns than the log that `expected` was built from."""
    deleted_ms = expected.deleted_ms(user, conversation)
    if store.deleted_ms(user, conversation) < deleted_ms:
        yield Difference(user, conversation, None, f"deleted at {deleted_ms}, which the store does not know")
    wanted = {saved.turn.message: saved for saved in _all(expected, user, conversation)}
    for saved in _all(store, user, conversation):
        message = saved.turn.message
        logged = wanted.pop(message, None)
        if logged is not None and logged != saved:
            yield Difference(user, conversation, message, "the store has another version than the log")
        if posted_ms(saved) <= deleted_ms:
            yield Difference(user, conversation, message, f"posted before the conversation was deleted at {deleted_ms}")
    for message in wanted:
        yield Difference(user, conversation, message, "not in the store")


def _all(store: Store, user: UserId, conversation: ConversationId) -> Iterator[TurnSaved]:
    """Every turn, the newest first."""
    found = store.messages(user, conversation, PAGE)
    while found:
        yield from reversed(found)
        found = store.messages(user, conversation, PAGE, found[0].turn.message)
