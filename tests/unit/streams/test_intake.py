"""Intake: log order in, one reply per client key out."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from schemas.events import (
    ChatMessage,
    ClientKey,
    ConversationDeleted,
    GenerateRequested,
    MessagePosted,
    Sampling,
    Tick,
    TurnSaved,
    unpack_ids,
)
from schemas.ids import ReplyId
from schemas.reply_records import Accepted, Redirected, Rejected
from schemas.tokenizer import ChatTokenizer
from streams.active import KEPT_IDLE_MS
from streams.admission import BUSY_PATIENCE_MS
from streams.bounds import MOST_PARKED_BYTES, MOST_TEXT_BYTES, MOST_TURNS_BYTES, PARKED_COST_BYTES
from streams.intake import TICK_EVERY_S
from streams.stage import HistoryWanted, Message
from tests.unit.streams.intakes import CODEC, PLACE, Intakes, loaded, settled, unavailable
from tests.unit.streams.staged import T0, answers, events, posted, reply_id, turn
from topics.catalog import DAY, RESUME_WINDOW_MS


@pytest.fixture
def intake(tokenizer: ChatTokenizer) -> Intakes:
    return Intakes(tokenizer)


def kinds(told: dict[ReplyId, Any]) -> Counter[type]:
    return Counter(map(type, told.values()))


def reasons(told: dict[ReplyId, Any]) -> dict[ReplyId, str]:
    return {reply: record.reason for reply, record in told.items() if isinstance(record, Rejected)}


def test_an_unknown_conversation_is_asked_for_once_and_answered_when_it_comes(intake: Intakes) -> None:
    first, second = intake.take(posted(1)), intake.take(posted(2))
    assert first.wanted == (HistoryWanted(posted(1).user, posted(1).conversation),)
    assert (first.first, second.wanted, second.first) == ((), (), ())
    assert isinstance(intake.told(loaded())[reply_id(1)], Accepted)


@pytest.mark.parametrize(("idle_ms", "known"), [(KEPT_IDLE_MS, True), (DAY - KEPT_IDLE_MS, True), (2 * DAY, False)])
def test_a_deletion_is_remembered_for_a_day(intake: Intakes, idle_ms: int, known: bool) -> None:
    intake.ready()
    intake.take(ConversationDeleted(posted(1).user, posted(1).conversation), T0 + 10)
    for at_ms in range(T0, T0 + idle_ms, KEPT_IDLE_MS):
        intake.take(Tick(), at_ms)
    [wanted] = intake.take(posted(1), T0 + 20 + idle_ms).wanted
    assert wanted.deleted_ms == (T0 + 10 if known else 0)


def test_time_alone_answers_nothing_before_the_history_is_there(intake: Intakes) -> None:
    intake.take(posted(1))
    assert intake.told(Tick(), T0 + 10 * BUSY_PATIENCE_MS) == {}
    assert len(intake.told(loaded())) == 1


def test_accepted_leaves_before_the_request_and_the_turn(intake: Intakes) -> None:
    intake.ready()
    decision = intake.take(posted(1, "hello"))
    assert [type(event) for event in events(decision.first)] == [Accepted]
    assert [type(event) for event in events(decision.then)] == [GenerateRequested, TurnSaved]


@pytest.mark.parametrize("known", [True, False], ids=["known", "loading"])
def test_of_six_at_once_one_is_accepted_and_five_follow_it(intake: Intakes, known: bool) -> None:
    if known:
        intake.ready()
    told: dict[ReplyId, Any] = {}
    for n in range(1, 7):
        told |= intake.told(posted(n, client_key="k"))
    told |= intake.told(loaded())
    assert kinds(told) == {Accepted: 1, Redirected: 5}
    assert {told[reply_id(n)].to for n in range(2, 7)} == {reply_id(1)}


def test_the_same_key_with_another_body_is_a_conflict(intake: Intakes) -> None:
    intake.ready()
    intake.take(posted(1, "one", client_key="k"))
    assert reasons(intake.told(posted(2, "two", client_key="k"))) == {reply_id(2): "conflict"}
    assert intake.told(posted(3, "one", client_key="k")) == {reply_id(3): Redirected(reply_id(1))}


def test_a_key_from_the_store_is_known(intake: Intakes) -> None:
    intake.take(posted(2, client_key="k", body_hash="b"))
    told = intake.told(loaded(keys=[ClientKey("k", "b", reply_id(1))]))
    assert told == {reply_id(2): Redirected(reply_id(1))}


def test_a_message_behind_an_open_reply_is_accepted_when_that_has_settled(intake: Intakes, tokenizer: Any) -> None:
    intake.ready()
    [before] = events(intake.take(posted(1, "one")).then, GenerateRequested)
    assert intake.told(posted(2, "two")) == {}
    decision = intake.take(settled(posted(1), turn("assistant", (90, 91), tokenizer.fingerprint)))
    assert isinstance(answers(decision)[reply_id(2)], Accepted)
    [request] = events(decision.then, GenerateRequested)
    said = (*unpack_ids(before.prompt), 90, 91)
    assert unpack_ids(request.prompt)[: len(said)] == said


def test_a_message_behind_an_open_reply_is_refused_after_two_seconds_of_log_time(intake: Intakes) -> None:
    intake.ready()
    intake.take(posted(1))
    intake.take(posted(2), T0 + 10)
    assert intake.told(Tick(), T0 + 10 + BUSY_PATIENCE_MS - 1) == {}
    assert reasons(intake.told(Tick(), T0 + 10 + BUSY_PATIENCE_MS)) == {reply_id(2): "conversation_busy"}
    assert intake.told(settled(posted(1))) == {}


def test_ticks_are_wanted_only_while_something_is_parked(intake: Intakes) -> None:
    intake.ready()
    assert list(intake.stage.ticks(100.0)) == []
    intake.take(posted(1))
    intake.take(posted(2))
    ticks = [events(intake.stage.ticks(200.0 + n * TICK_EVERY_S / 2)) for n in range(4)]
    assert ticks == [[Tick()], [], [Tick()], []]
    intake.take(settled(posted(1)))
    assert list(intake.stage.ticks(300.0)) == []


def test_messages_whose_history_cannot_be_read_are_refused_and_the_next_asks_again(intake: Intakes) -> None:
    intake.take(posted(1))
    intake.take(posted(2))
    refused = reasons(intake.told(unavailable()))
    assert refused == dict.fromkeys((reply_id(1), reply_id(2)), "history_unavailable")
    assert intake.take(posted(3)).wanted


def test_two_users_conversations_of_one_name_never_meet(intake: Intakes) -> None:
    for n, user in enumerate(("alice", "bob"), 1):
        intake.ready(user)
        assert isinstance(intake.told(posted(n, user=user, client_key="k"))[reply_id(n)], Accepted)
    assert intake.told(settled(posted(1, user="alice"))) == {}
    intake.take(posted(4, user="bob"))
    assert reasons(intake.told(Tick(), T0 + 10 + BUSY_PATIENCE_MS)) == {reply_id(4): "conversation_busy"}


def test_an_idle_conversation_is_forgotten_after_ten_minutes_and_loaded_again(intake: Intakes) -> None:
    intake.ready()
    intake.take(posted(1))
    intake.take(settled(posted(1)), T0 + 5)
    intake.take(Tick(), T0 + 5 + KEPT_IDLE_MS - 1)
    assert [change.event is None for change in intake.stage.changes()] == [False]
    intake.take(Tick(), T0 + 5 + KEPT_IDLE_MS)
    assert [(change.key, change.event) for change in intake.stage.changes()] == [("alice/c", None)]
    assert intake.take(posted(2), T0 + 5 + KEPT_IDLE_MS).wanted


def test_a_conversation_with_an_open_reply_is_never_forgotten(intake: Intakes) -> None:
    intake.ready()
    intake.take(posted(1, client_key="k"))
    for minutes in range(0, 40, 7):
        intake.take(Tick(), T0 + minutes * 60_000)
    assert intake.told(posted(2, "hi", client_key="k"), T0 + KEPT_IDLE_MS * 4) == {reply_id(2): Redirected(reply_id(1))}


def test_what_cannot_be_made_a_prompt_is_refused_and_nobody_waits_behind_it(intake: Intakes, tokenizer: Any) -> None:
    half_an_id = replace(turn("user", (), tokenizer.fingerprint), token_ids=b"xyz")
    intake.take(posted(1))
    intake.take(posted(2))
    refused = reasons(intake.told(loaded("alice", "c", half_an_id)))
    assert refused == dict.fromkeys((reply_id(1), reply_id(2)), "internal")
    assert reasons(intake.told(posted(3))) == {reply_id(3): "internal"}


def completion(n: int, client_key: str = "", **fields: Any) -> MessagePosted:
    whole = (ChatMessage("user", "hello"),)
    return posted(n, "", conversation=f"completion:{client_key or n}", client_key=client_key, messages=whole, **fields)


def test_completions_ask_for_no_history_and_wait_for_nobody(intake: Intakes) -> None:
    decisions = [intake.take(completion(n)) for n in range(1, 4)]
    assert [decision.wanted for decision in decisions] == [()] * 3
    assert kinds({r: a for decision in decisions for r, a in answers(decision).items()}) == {Accepted: 3}
    assert [type(event) for event in events(decisions[0].then)] == [GenerateRequested]
    assert list(intake.stage.changes()) == []


def test_a_completion_with_a_key_is_remembered_until_it_is_idle(intake: Intakes) -> None:
    intake.take(completion(1, "k"))
    assert intake.told(completion(2, "k")) == {reply_id(2): Redirected(reply_id(1))}
    assert reasons(intake.told(completion(3, "k", body_hash="other"))) == {reply_id(3): "conflict"}
    intake.take(settled(completion(1, "k")))
    assert intake.told(completion(4, "k")) == {reply_id(4): Redirected(reply_id(1))}
    intake.take(Tick(), T0 + KEPT_IDLE_MS)
    assert kinds(intake.told(completion(5, "k"), T0 + KEPT_IDLE_MS)) == {Accepted: 1}


@pytest.mark.parametrize("state", ["stopped", "failed", "shed"])
def test_the_key_of_a_completion_that_was_no_answer_may_try_again(intake: Intakes, state: str) -> None:
    intake.take(completion(1, "k"))
    intake.take(replace(settled(completion(1, "k")), state=state))
    assert kinds(intake.told(completion(2, "k"))) == {Accepted: 1}


def test_a_completion_that_cannot_be_accepted_is_refused_at_once(intake: Intakes) -> None:
    assert reasons(intake.told(completion(1, model="huge"))) == {reply_id(1): "model_not_found"}
    assert list(intake.stage.changes()) == []


def test_one_users_parked_texts_are_bounded_over_all_conversations(intake: Intakes) -> None:
    long = "x" * (MOST_PARKED_BYTES // 4 - PARKED_COST_BYTES)
    told = [intake.told(posted(n, long, conversation=f"c{n}")) for n in range(1, 7)]
    assert [reasons(answered) for answered in told] == [{}] * 5 + [{reply_id(6): "conversation_busy"}]
    assert intake.told(posted(7, long, user="bob")) == {}
    intake.take(loaded("alice", "c1"))
    assert intake.told(posted(8, long, conversation="c8")) == {}


def test_a_refused_record_tells_its_reply_if_the_cell_has_it(intake: Intakes) -> None:
    def refused(event: MessagePosted | None) -> Any:
        return answers(intake.stage.refused(Message(PLACE, 0, T0, b"", event)))

    assert reasons(refused(posted(1))) == {reply_id(1): "internal"}
    far = replace(posted(1), reply=reply_id(1, partition=7))
    assert refused(far) == refused(None) == {}
    with pytest.raises(ValueError, match="of this cell"):
        intake.take(far)


NEVER_POSTED: dict[str, dict[str, Any]] = {
    "deadline": {"deadline_ms": 2**63 - 1},
    "no deadline": {"deadline_ms": -1},
    "text": {"text": "x" * (MOST_TEXT_BYTES + 1)},
    "messages": {"messages": (ChatMessage("user", "x" * (MOST_TEXT_BYTES + 1)),)},
    "stop": {"sampling": Sampling(0, stop=("x" * 20_000,))},
    **{name: {name: "\u00e9" * 257} for name in ("user", "account", "plan", "conversation", "client_key", "model")},
}


@pytest.mark.parametrize("name", NEVER_POSTED)
def test_what_no_edge_can_have_posted_is_refused_and_leaves_nothing(intake: Intakes, name: str) -> None:
    intake.ready()
    list(intake.stage.changes())
    bad = replace(posted(1), **NEVER_POSTED[name])
    with pytest.raises(ValueError, match=r"more than|expected"):
        intake.take(bad)
    assert reasons(answers(intake.stage.refused(Message(PLACE, 0, T0, b"", bad)))) == {reply_id(1): "internal"}
    assert list(intake.stage.changes()) == []
    assert isinstance(intake.told(posted(2))[reply_id(2)], Accepted)


def test_a_reply_whose_end_is_never_told_keeps_its_conversation_busy_as_long_as_the_log_could(intake: Intakes) -> None:
    intake.ready()
    intake.take(posted(1))
    intake.take(posted(2), T0 + RESUME_WINDOW_MS)
    assert reasons(intake.told(Tick(), T0 + RESUME_WINDOW_MS)) == {}
    [told] = intake.told(Tick(), T0 + RESUME_WINDOW_MS + 1).values()
    assert isinstance(told, Accepted)


def test_a_conversation_whose_reply_was_lost_is_forgotten_like_any_other(intake: Intakes) -> None:
    intake.ready()
    intake.take(posted(1))
    for minutes in range(0, 60, 7):
        intake.take(Tick(), T0 + minutes * 60_000)
        assert [change.event is None for change in intake.stage.changes()] in ([], [False])
    intake.take(Tick(), T0 + RESUME_WINDOW_MS + KEPT_IDLE_MS)
    assert [change.event is None for change in intake.stage.changes()] == [True]


@pytest.mark.parametrize("kind", ["loaded", "settled"])
def test_turns_that_its_state_could_not_hold_are_left_out(intake: Intakes, kind: str) -> None:
    huge = turn("assistant", (1,), text="x" * (MOST_TURNS_BYTES + 1))
    intake.take(posted(1))
    intake.take(loaded("alice", "c", huge) if kind == "loaded" else loaded())
    intake.take(settled(posted(1), huge))
    assert max(len(CODEC.encode(change.event)) for change in intake.stage.changes()) < 5_000
    assert isinstance(intake.told(posted(2))[reply_id(2)], Accepted)
