"""Intake: another question in an earlier place, another answer to an earlier question, another system prompt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas.events import ROOT, ConversationDeleted, GenerateRequested, MessagePosted, Tick, TurnSaved, unpack_ids
from schemas.ids import MessageId, assistant_message_id, user_message_id
from schemas.reply_records import Accepted, Redirected, Rejected
from schemas.tokenizer import ChatTokenizer, PromptTurn
from streams.admission import BUSY_PATIENCE_MS
from streams.stage import Decision, HistoryWanted
from tests.unit.streams.intakes import Intakes, loaded, unavailable
from tests.unit.streams.staged import T0, answers, events, posted, reply_id, turn


@pytest.fixture
def intake(tokenizer: ChatTokenizer) -> Intakes:
    made = Intakes(tokenizer)
    made.ready()
    return made


def asked(n: int) -> MessageId:
    return user_message_id(reply_id(n))


def answer(n: int) -> MessageId:
    return assistant_message_id(reply_id(n))


def prompt(decision: Decision) -> tuple[int, ...]:
    [request] = events(decision.then, GenerateRequested)
    return unpack_ids(request.prompt)


def spelled(tokenizer: ChatTokenizer, *said: str, system: str = "") -> tuple[int, ...]:
    turns = [("system", system or tokenizer.system), *zip(("user", "assistant") * len(said), said, strict=False)]
    return tokenizer.prompt([PromptTurn(role, tokenizer.encode(text)) for role, text in turns])


def reasons(told: dict[Any, Any]) -> list[str]:
    return [record.reason for record in told.values() if isinstance(record, Rejected)]


def wanted(message: MessagePosted, leaf: MessageId | None) -> tuple[HistoryWanted, ...]:
    return (HistoryWanted(message.user, message.conversation, leaf),)


def test_an_edited_question_goes_on_from_what_was_before_it(intake: Intakes, tokenizer: ChatTokenizer) -> None:
    intake.exchange(posted(1, "one"), "first")
    intake.exchange(posted(2, "two"), "second")
    edited = intake.exchange(posted(3, "three", parent=answer(1)), "third")
    assert prompt(edited) == spelled(tokenizer, "one", "first", "three")
    [saved] = events(edited.then, TurnSaved)
    assert (saved.turn.message, saved.turn.parent) == (asked(3), answer(1))
    assert prompt(intake.take(posted(4, "four"))) == spelled(tokenizer, "one", "first", "three", "third", "four")


def test_a_first_question_may_be_asked_otherwise(intake: Intakes, tokenizer: ChatTokenizer) -> None:
    intake.exchange(posted(1, "one"), "first")
    anew = intake.take(posted(2, "two", parent=ROOT))
    assert prompt(anew) == spelled(tokenizer, "two")
    assert [saved.turn.parent for saved in events(anew.then, TurnSaved)] == [None]


def test_a_question_that_is_asked_again_is_not_saved_again(intake: Intakes, tokenizer: ChatTokenizer) -> None:
    first = intake.exchange(posted(1, "one"), "first")
    again = intake.exchange(posted(2, "", parent=asked(1), client_key="k"), "other")
    assert prompt(again) == prompt(first)
    assert events(again.then, TurnSaved) == []
    [accepted] = answers(again).values()
    assert (accepted.user_message, accepted.assistant_message) == (asked(1), answer(2))
    assert (accepted.client_key, accepted.body_hash) == ("k", "")
    assert prompt(intake.take(posted(3, "on"))) == spelled(tokenizer, "one", "other", "on")


def test_a_system_prompt_that_comes_with_asking_again_is_kept_with_the_answer(intake: Intakes) -> None:
    intake.exchange(posted(1, "one", system="Say more."))
    [plain] = answers(intake.exchange(posted(2, "", parent=asked(1)))).values()
    [told] = answers(intake.exchange(posted(3, "", parent=asked(1), system="Say less."))).values()
    [question] = answers(intake.exchange(posted(4, "two", system="Say it all."))).values()
    assert (plain.system, told.system, question.system) == (None, "Say less.", None)


def test_a_repeat_of_asking_again_meets_the_same_reply(intake: Intakes) -> None:
    intake.exchange(posted(1, "one"))
    intake.take(posted(2, "", parent=asked(1), client_key="k"))
    assert intake.told(posted(3, "", parent=asked(1), client_key="k")) == {reply_id(3): Redirected(reply_id(2))}
    assert reasons(intake.told(posted(4, "x", parent=asked(1), client_key="k"))) == ["conflict"]


def test_only_a_question_can_be_asked_again(intake: Intakes) -> None:
    intake.exchange(posted(1, "one"))
    assert reasons(intake.told(posted(2, "", parent=answer(1)))) == ["parent_not_a_question"]
    assert isinstance(intake.told(posted(3, "on"))[reply_id(3)], Accepted)


def test_another_branch_comes_from_the_store(intake: Intakes, tokenizer: ChatTokenizer) -> None:
    intake.exchange(posted(1, "one"), "first")
    intake.exchange(posted(2, "two", parent=ROOT), "second")
    back = posted(3, "three", parent=answer(1))
    assert intake.take(back).wanted == wanted(back, answer(1))
    old = (
        turn("user", tokenizer.encode("one"), tokenizer.fingerprint, "one", asked(1)),
        turn("assistant", tokenizer.encode("first"), tokenizer.fingerprint, "first", answer(1)),
    )
    assert intake.take(loaded()).first == (), "what another question has asked for"
    assert prompt(intake.take(loaded("alice", "c", *old, leaf=answer(1)))) == spelled(
        tokenizer, "one", "first", "three"
    )


def test_a_parent_that_is_not_there_is_refused_and_the_rest_goes_on(intake: Intakes) -> None:
    intake.exchange(posted(1, "one"))
    lost = posted(2, "two", parent=MessageId("u-9"))
    assert intake.take(lost).wanted == wanted(lost, MessageId("u-9"))
    after = posted(3, "three")
    intake.take(after)
    decision = intake.take(loaded(leaf=MessageId("u-9"), found=False))
    assert reasons(answers(decision)) == ["parent_not_found"]
    assert decision.wanted == wanted(after, answer(1))


def test_a_refused_branch_does_not_move_the_conversation(intake: Intakes, tokenizer: ChatTokenizer) -> None:
    intake.exchange(posted(1, "one"), "first")
    intake.exchange(posted(2, "two", parent=ROOT), "second")
    intake.take(posted(3, "x" * 600, parent=answer(1)))
    old = turn("user", (70,), tokenizer.fingerprint, "C", asked(1))
    assert reasons(intake.told(loaded("alice", "c", old, leaf=answer(1)))) == ["context_length_exceeded"]
    on = posted(4, "on")
    assert intake.take(on).wanted == wanted(on, answer(2))


def test_a_store_that_has_not_saved_the_last_turns_yet_is_not_believed(intake: Intakes) -> None:
    intake.exchange(posted(1, "one"))
    intake.exchange(posted(2, "two", parent=ROOT))
    intake.take(posted(3, "back", parent=answer(1)))
    assert reasons(intake.told(unavailable(leaf=answer(1)))) == ["history_unavailable"]
    intake.take(posted(4, "on"))
    assert reasons(intake.told(loaded(leaf=answer(2), found=False))) == ["history_unavailable"]
    assert intake.told(posted(5, client_key="key-1", body_hash="one")) == {reply_id(5): Redirected(reply_id(1))}


@pytest.mark.parametrize("older", [asked(1), answer(1)])
def test_nor_is_one_that_has_not_saved_the_parent_yet(intake: Intakes, older: MessageId) -> None:
    intake.exchange(posted(1, "one"))
    intake.exchange(posted(2, "two", parent=ROOT))
    intake.take(posted(3, "back", parent=older))
    assert reasons(intake.told(loaded(leaf=older, found=False))) == ["history_unavailable"]


def test_branches_wait_for_the_open_reply_too(intake: Intakes) -> None:
    intake.exchange(posted(1, "one"))
    intake.take(posted(2, "two"))
    assert intake.told(posted(3, "", parent=asked(1))) == {}
    assert reasons(intake.told(Tick(), T0 + 10 + BUSY_PATIENCE_MS)) == ["conversation_busy"]


def test_a_system_prompt_stays_until_another_is_given(intake: Intakes, tokenizer: ChatTokenizer) -> None:
    first = intake.exchange(posted(1, "one", system="Be loud."), "FIRST")
    assert [saved.system for saved in events(first.then, TurnSaved)] == ["Be loud."]
    second = intake.exchange(posted(2, "two"), "SECOND")
    assert prompt(second) == spelled(tokenizer, "one", "FIRST", "two", system="Be loud.")
    third = intake.take(posted(3, "three", system="", parent=ROOT))
    assert prompt(third) == spelled(tokenizer, "three")


def test_a_system_prompt_comes_back_from_the_store(intake: Intakes, tokenizer: ChatTokenizer) -> None:
    intake.take(posted(1, "one", conversation="old"))
    decision = intake.take(loaded("alice", "old", system="Be loud."))
    assert prompt(decision) == spelled(tokenizer, "one", system="Be loud.")


def test_another_branch_of_a_deleted_conversation_waits_for_a_store_that_knows_of_the_deletion(intake: Intakes) -> None:
    intake.exchange(posted(1, "one"))
    [deleted] = events(intake.take(ConversationDeleted(posted(1).user, posted(1).conversation)).then)
    intake.exchange(posted(2, "anew"), at_ms=T0 + 9)
    [asked_for] = intake.take(posted(3, "back", parent=answer(1)), T0 + 9).wanted
    assert asked_for == replace(wanted(posted(3), answer(1))[0], deleted_ms=deleted.at_ms)
