"""History passes what `turns` says on to the projection with its offset, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.events import ConversationDeleted, ConversationRenamed, Tick, Turn, TurnSaved
from schemas.ids import ConversationId, MessageId, ReplyId, UserId
from streams.history import History
from streams.stage import NOTHING, Decision, Message
from topics.catalog import TURNS
from topics.log import Place, Position

TURN = Turn(MessageId("u-1"), None, "user", "hello", b"", "tokenizer", "complete")
SAVED = TurnSaved(UserId("ada"), ConversationId("c1"), TURN, ReplyId("r-1"), "model", 1)


def at(offset: int, event: object) -> Message:
    return Message(Place(TURNS, 0), offset, 1, b"key", event)


def test_a_turn_goes_on_with_its_offset_and_a_repeat_is_the_stores_business() -> None:
    stage = History()
    for message in (at(4, SAVED), at(9, SAVED)):
        assert stage.apply(message) == Decision(projected=(message,))


def test_a_name_and_a_deletion_go_on_as_turns_do() -> None:
    ada, c1 = UserId("ada"), ConversationId("c1")
    for event in (ConversationRenamed(ada, c1, "title", 5), ConversationDeleted(ada, c1, 6)):
        assert History().apply(at(2, event)) == Decision(projected=(at(2, event),))


def test_a_store_goes_on_where_it_was_and_another_begins_at_the_oldest_turn() -> None:
    place, committed = Place(TURNS, 0), Position(7, "this one")
    assert History("this one").assigned(place, committed) is None
    assert History("another").assigned(place, committed) == History("this one").assigned(place, None) == 0
    assert History("this one").position(place, 7) == committed


def test_an_event_of_another_type_is_passed_over() -> None:
    assert History().apply(at(1, Tick())) == NOTHING


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (replace(SAVED, user=UserId("")), "user has 0 bytes"),
        (replace(SAVED, client_key="k" * 513), "client_key has 513 bytes, expected 1 to 512"),
        (replace(SAVED, turn=replace(TURN, message=MessageId("m" * 70_000))), "message has 70000 bytes"),
        (replace(SAVED, posted_ms=-1), "posted_ms=-1: expected"),
        (ConversationDeleted(UserId("ada"), ConversationId("c"), 2**60), "at_ms="),
    ],
)
def test_what_no_store_can_have_as_a_key_is_not_waited_for(event: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        History().apply(at(1, event))
