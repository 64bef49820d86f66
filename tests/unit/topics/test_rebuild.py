"""The store against the log that it is made of: built anew, compared, and a user's end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from infra.users import delete_user
from schemas.codec import Codec
from schemas.events import ConversationDeleted, ConversationRenamed
from schemas.ids import ConversationId, Incarnation, UserId
from tests.contract.test_store import ADA, BOB, C1, C2, deleted, exchange, exchanges, names, renamed, with_status
from tests.unit.topics.commits import commit
from topics.catalog import MESSAGES, TURNS, Sizes, catalog
from topics.errors import Unavailable
from topics.log import Append, Place
from topics.memory import MemoryLog
from topics.outputs import Encoder, Routes
from topics.schemas import Decoder
from topics.store.contract import SavedAt, Store
from topics.store.rebuild import Turns, rebuild, verify
from topics.store.sqlite import SqliteStore

SIZES = Sizes(users=2)
CODEC = Codec()


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog({topic.name: topic.partitions for topic in catalog(SIZES)}, lambda: 1_000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(SqliteStore(tmp_path / "store.sqlite")) as opened:
        yield opened


def turns(log: MemoryLog) -> Turns:
    return Turns(log, Decoder(log, CODEC))


def append(log: MemoryLog, records: list[SavedAt]) -> None:
    """As the stages do; offsets are the log's own."""
    routes, encoder, producer = Routes(SIZES), Encoder(CODEC, SIZES, Incarnation("w")), log.producer()
    for record in records:
        changed = isinstance(record.saved, ConversationRenamed | ConversationDeleted)
        output = routes.conversation(record.saved) if changed else routes.turn(record.saved)  # type: ignore[arg-type]
        producer.send(encoder.append(output))
    producer.flush(1.0)


SAID = [*exchanges(3), *exchange(1, conversation=C2), *exchange(1, user=BOB), renamed("a name", 50, 1)]


def test_a_store_that_was_lost_is_built_from_the_log(log: MemoryLog, store: Store) -> None:
    append(log, [*SAID, deleted(10**6, conversation=C2)])
    log.producer().send(Append(Place(TURNS, 0), b"key", b"no record"))
    told: list[int] = []
    seen = rebuild(turns(log), store, told.append)
    assert (seen.records, seen.saved, seen.bad, sum(told)) == (13, 12, 1, 13) and turns(log).count() == 13
    assert names(store.messages(ADA, C1, 10)) == ["u-0", "a-0", "u-1", "a-1", "u-2", "a-2"]
    assert [line.title for line in store.conversations(ADA, 10)] == ["a name"]
    assert names(store.messages(BOB, C1, 10)) == ["u-1", "a-1"]


def test_a_store_that_is_as_the_log_says_has_no_differences_though_it_knows_more(log: MemoryLog, store: Store) -> None:
    append(log, SAID)
    rebuild(turns(log), store)
    store.save([SavedAt(99, exchange(9, conversation=C1)[0].saved)])
    assert verify(turns(log), store)[1] == []


def test_what_is_missing_changed_or_not_deleted_is_told(log: MemoryLog, store: Store) -> None:
    append(log, [*SAID, deleted(1100, user=BOB)])
    missing, changed = SAID[0], with_status(SAID[1], "flagged", 99)
    store.save([record for record in SAID if record is not missing] + [changed])
    told = sorted(str(difference) for difference in verify(turns(log), store)[1])
    assert told == [
        "ada / c1 / a-0: the store has another version than the log",
        "ada / c1 / u-0: not in the store",
        "bob / c1 / a-1: posted before the conversation was deleted at 1100",
        "bob / c1 / u-1: posted before the conversation was deleted at 1100",
        "bob / c1: deleted at 1100, which the store does not know",
    ]


def test_a_user_is_gone_once_all_conversations_are(log: MemoryLog, store: Store) -> None:
    store.save(SAID)

    def obey() -> None:
        """Intake and history in one."""
        reader = log.reader()
        place = Place(MESSAGES, Routes(SIZES).of_user(ADA))
        reader.add(place, 0)
        for _ in range(2):
            [record] = reader.poll(1, 30.0)
            asked = CODEC.decode(record.value)
            store.save([SavedAt(100, ConversationDeleted(asked.user, asked.conversation, 10**6))])

    stages = Thread(target=obey)
    stages.start()
    assert delete_user(log, SIZES, CODEC, store, ADA) == 2
    stages.join()
    assert (store.conversations(ADA, 10), names(store.messages(BOB, C1, 10))) == ((), ["u-1", "a-1"])
    commit(log, "intake", Place(MESSAGES, Routes(SIZES).of_user(ADA)), 2)
    assert delete_user(log, SIZES, CODEC, store, UserId("nobody")) == 0


def test_what_is_not_decided_or_not_saved_yet_is_waited_for(log: MemoryLog, store: Store) -> None:
    messages, turns = (Place(topic, Routes(SIZES).of_user(ADA)) for topic in (MESSAGES, TURNS))
    log.producer().send(Append(messages, b"", b"a message on its way"))
    with pytest.raises(Unavailable, match="or more are on their way to it"):
        delete_user(log, SIZES, CODEC, store, ADA, patience_s=0.0)
    commit(log, "intake", messages, 1)
    log.producer().send(Append(turns, b"", b"a turn on its way"))
    with pytest.raises(Unavailable, match="or more are on their way to it"):
        delete_user(log, SIZES, CODEC, store, ADA, patience_s=0.0)
    store.save(exchange(0, user=BOB))
    commit(log, "history", turns, 1, store.identity())
    assert delete_user(log, SIZES, CODEC, store, ADA, patience_s=0.0) == 0


def test_a_deletion_that_nobody_does_is_told(log: MemoryLog, store: Store) -> None:
    store.save(exchange(0, conversation=ConversationId("stays")))
    with pytest.raises(Unavailable, match=r"1 conversations of ada are still in the store.*history running"):
        delete_user(log, SIZES, CODEC, store, ADA, patience_s=0.0)
