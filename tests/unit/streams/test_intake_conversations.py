"""A conversation renamed and deleted: what goes on to `turns`, who is told, and what a later message finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas.events import ConversationDeleted, ConversationRenamed, GenerateRequested, TurnSaved
from schemas.ids import ConversationId, UserId, user_message_id
from schemas.reply_records import Accepted, Rejected, Stopped
from schemas.tokenizer import ChatTokenizer
from streams.active import KEPT_IDLE_MS
from streams.stage import NOTHING
from tests.unit.streams.intakes import PLACE, Intakes, loaded, settled, unavailable
from tests.unit.streams.staged import T0, answers, events, posted, reply_id, turn
from topics.catalog import TURNS

ALICE, C = UserId("alice"), ConversationId("c")
DELETED = ConversationDeleted(ALICE, C)
RENAMED = ConversationRenamed(ALICE, C, "To Rome")


@pytest.fixture
def intake(tokenizer: ChatTokenizer) -> Intakes:
    return Intakes(tokenizer)


def test_both_go_on_to_turns_with_the_time_of_the_log(intake: Intakes) -> None:
    renamed, deleted = intake.take(RENAMED, T0 + 1), intake.take(DELETED, T0 + 2)
    [first], [second] = renamed.then, deleted.then
    assert first.event == ConversationRenamed(ALICE, C, "To Rome", T0 + 1)
    assert second.event == ConversationDeleted(ALICE, C, T0 + 2)
    assert (first.place.topic, first.key, renamed.first, deleted.first) == (TURNS, "alice/c", (), ())


def test_a_deletion_stops_the_open_reply_and_refuses_what_waits_behind_it(intake: Intakes) -> None:
    intake.ready()
    intake.take(posted(1))
    intake.take(posted(2))
    told: dict[Any, Any] = intake.told(DELETED)
    assert told[reply_id(1)] == Stopped("user")
    assert isinstance(told[reply_id(2)], Rejected) and told[reply_id(2)].reason == "conversation_deleted"


def test_a_deletion_refuses_what_waits_for_its_history_which_then_comes_for_nobody(intake: Intakes) -> None:
    intake.take(posted(1))
    assert [record.reason for record in intake.told(DELETED).values() if isinstance(record, Rejected)] == [
        "conversation_deleted"
    ]
    assert intake.take(loaded("alice", "c", turn("user", (1,)))) == NOTHING


def test_what_is_said_after_a_deletion_knows_nothing_of_before(intake: Intakes, tokenizer: ChatTokenizer) -> None:
    intake.ready()
    [alone] = events(intake.take(posted(1, client_key="k")).then, GenerateRequested)
    intake.take(settled(posted(1), turn("assistant", (70,), tokenizer.fingerprint)))
    intake.take(DELETED)
    decision = intake.take(posted(2, client_key="k"))
    [request], [saved] = events(decision.then, GenerateRequested), events(decision.then, TurnSaved)
    assert isinstance(answers(decision)[reply_id(2)], Accepted)
    assert (request.prompt, saved.turn.parent) == (alone.prompt, None)


def test_a_reply_that_settles_after_the_deletion_adds_nothing(intake: Intakes, tokenizer: ChatTokenizer) -> None:
    intake.ready()
    intake.take(posted(1))
    intake.take(DELETED)
    assert intake.take(settled(posted(1), turn("assistant", (70,), tokenizer.fingerprint))) == NOTHING
    fresh = Intakes(tokenizer)
    fresh.ready()
    [request], [alone] = (events(each.take(posted(2)).then, GenerateRequested) for each in (intake, fresh))
    assert request.prompt == alone.prompt


def test_within_one_millisecond_each_deletion_lies_between_what_was_before_and_after(intake: Intakes) -> None:
    times: list[int] = []
    intake.ready()
    for n in range(1, 4):
        decision = intake.take(posted(n))
        [saved] = events(decision.then, TurnSaved)
        accepted: Any = answers(decision)[reply_id(n)]
        [deleted] = events(intake.take(DELETED).then)
        assert saved.posted_ms == accepted.posted_ms
        times += saved.posted_ms, deleted.at_ms + 0.5
    assert times == sorted(set(times)) and times[0] < T0 + 10


def test_two_messages_of_one_millisecond_lie_apart_in_the_store(intake: Intakes) -> None:
    intake.ready()
    saved = [events(intake.exchange(posted(n)).then, TurnSaved)[0] for n in (2, 1)]  # by id the other way round
    assert saved[0].posted_ms < saved[1].posted_ms


def test_a_clock_that_went_back_puts_no_deletion_before_what_it_deletes(intake: Intakes) -> None:
    intake.ready()
    [saved] = events(intake.take(posted(1), T0 + 100).then, TurnSaved)
    [deleted] = events(intake.take(DELETED, T0 + 50).then)
    [again] = events(intake.take(posted(2), T0 + 60).then, TurnSaved)
    assert saved.posted_ms <= deleted.at_ms < again.posted_ms


def test_a_name_for_what_is_deleted_goes_nowhere_until_something_is_said_again(intake: Intakes) -> None:
    intake.ready()
    [deleted] = events(intake.take(DELETED).then)
    assert intake.take(RENAMED) == NOTHING
    intake.take(posted(1))
    [renamed] = events(intake.take(RENAMED).then)
    assert renamed.at_ms > deleted.at_ms


def test_a_deletion_is_remembered_for_ten_idle_minutes_and_then_the_store_is_asked(intake: Intakes) -> None:
    intake.take(DELETED)
    assert not intake.take(posted(1, model="not served"), T0 + 1).wanted
    assert intake.take(posted(2), T0 + 1 + KEPT_IDLE_MS).wanted


def test_a_deletion_is_remembered_while_the_store_is_away(intake: Intakes) -> None:
    [deleted] = events(intake.take(DELETED).then)
    parent = user_message_id(reply_id(9))  # of what was deleted: the store may still have it
    [wanted] = intake.take(posted(1, parent=parent)).wanted
    intake.take(unavailable(leaf=parent))
    [again] = intake.take(posted(2, parent=parent)).wanted
    assert wanted.deleted_ms == again.deleted_ms == deleted.at_ms


def test_what_the_store_held_before_a_deletion_is_no_answer_to_what_was_asked_after_it(intake: Intakes) -> None:
    intake.take(posted(1))
    intake.take(DELETED)
    parent = user_message_id(reply_id(9))
    [asked] = intake.take(posted(2, parent=parent)).wanted
    late = loaded("alice", "c", leaf=parent)
    assert intake(PLACE, late, T0) == NOTHING
    assert [type(told) for told in intake.told(replace(late, deleted_ms=asked.deleted_ms)).values()] == [Accepted]


def test_a_deletion_is_remembered_when_the_first_reply_after_it_comes_to_nothing(intake: Intakes) -> None:
    [deleted] = events(intake.take(DELETED).then)
    intake.take(posted(1, client_key="k"))
    intake.take(replace(settled(posted(1)), state="shed"))
    [wanted] = intake.take(posted(2, client_key="k")).wanted
    assert wanted.deleted_ms == deleted.at_ms


def test_another_users_conversation_of_that_name_is_left_alone(intake: Intakes) -> None:
    intake.ready("bob")
    intake.take(posted(1, user="bob", client_key="k"))
    assert intake.told(DELETED) == {}
    intake.take(posted(2, user="bob"))
    assert [*intake.told(settled(posted(1, user="bob")))] == [reply_id(2)]
