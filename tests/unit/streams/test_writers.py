"""What a producer sends twice is decided once: a refusal stays one, and a deletion is over."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.codec import Codec
from schemas.events import ConversationDeleted, Tick
from schemas.ids import ConversationId, Incarnation, UserId
from schemas.reply_records import Accepted, Rejected
from schemas.tokenizer import ChatTokenizer
from streams.admission import BUSY_PATIENCE_MS
from streams.stage import NOTHING, Decision, Message
from streams.writers import KEPT_SILENT_MS, MOST_WRITERS, Writers
from tests.unit.streams.intakes import PLACE, Changelog, Intakes, keep, restored, settled
from tests.unit.streams.staged import ROUTES, SIZES, T0, answers, posted
from topics.outputs import WRITTEN, Encoder, Written, written

DELETED = ConversationDeleted(UserId("alice"), ConversationId("c"))


def came(event: object, number: int, offset: int, at_ms: int = T0) -> Message:
    return Message(PLACE, offset, at_ms, b"alice", event, written=Written("edge-1", number))


def kinds(decision: Decision) -> list[type]:
    return [type(record) for record in answers(decision).values()]


@pytest.fixture
def intakes(tokenizer: ChatTokenizer) -> Intakes:
    found = Intakes(tokenizer)
    found.ready()
    return found


def test_a_refused_message_is_not_accepted_when_it_comes_once_more(intakes: Intakes, tokenizer: ChatTokenizer) -> None:
    running, refused = posted(1, "a"), posted(2, "b")
    assert kinds(intakes.stage.apply(came(running, 1, 11))) == [Accepted]
    intakes.stage.apply(came(refused, 2, 12))
    late = T0 + 10 + BUSY_PATIENCE_MS
    assert kinds(intakes.stage.apply(Message(PLACE, 13, late, b"", Tick()))) == [Rejected]
    changelog: Changelog = {}
    keep(changelog, intakes.stage.changes())
    for stage in (intakes.stage, restored(tokenizer, changelog)):
        stage.apply(Message(PLACE, 14, late, b"alice", settled(running)))
        assert stage.apply(came(refused, 2, 15, late)) == NOTHING
        assert kinds(stage.apply(came(posted(3, "c"), 3, 16, late))) == [Accepted]


def test_a_deletion_that_comes_once_more_deletes_nothing_that_was_said_since(intakes: Intakes) -> None:
    intakes.stage.apply(came(DELETED, 1, 11))
    said = posted(1, "after the deletion")
    intakes.stage.apply(came(said, 2, 12))
    assert intakes.stage.apply(came(DELETED, 1, 13)) == NOTHING
    [kept] = intakes.stage._partitions[PLACE].kept.values()
    assert kept.open_reply == said.reply or [one.message for one in kept.parked] == [said]


def test_what_says_no_number_is_always_new_and_writers_are_apart() -> None:
    writers = Writers()
    assert [writers.is_repeat(None, T0) for _ in range(2)] == [False, False]
    assert [writers.is_repeat(Written(name, 5), T0) for name in ("a", "b", "a")] == [False, False, True]
    assert [writers.is_repeat(Written("b", number), T0) for number in (4, 6)] == [True, False]


def test_who_has_been_silent_for_long_is_forgotten_and_so_are_too_many() -> None:
    writers = Writers()
    writers.is_repeat(Written("silent", 1), T0)
    writers.is_repeat(Written("heard", 1), T0 + KEPT_SILENT_MS + 1)
    assert list(writers.kept) == ["heard"]
    for n in range(MOST_WRITERS + 1):
        writers.is_repeat(Written(f"w{n}", 1), T0 + KEPT_SILENT_MS + 2)
    assert len(writers.kept) == MOST_WRITERS and "heard" not in writers.kept


def test_an_encoder_numbers_what_is_decided_once_and_nothing_else() -> None:
    encoder = Encoder(Codec(), SIZES, Incarnation("edge/1"))
    events: tuple[Any, ...] = (posted(1, "a"), settled(posted(1, "a")), DELETED)
    found = [written(encoder.append(ROUTES.message(UserId("alice"), event)).headers) for event in events]
    assert found == [Written("edge/1", 0), None, Written("edge/1", 1)]


@pytest.mark.parametrize(
    "value", [b"", b"edge", b"/1", b"edge/", b"edge/-1", b"edge/\xb2", b"e" * 129 + b"/1", b"edge/1x"]
)
def test_a_number_that_is_none_is_as_if_it_were_not_said(value: bytes) -> None:
    assert written(((WRITTEN, value),)) is None
    assert written((("traceparent", value), (WRITTEN, b"edge/1"))) == Written("edge", 1)
