"""The contract of `topics/store/contract.py`, kept by every conversation store."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from uuid import uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.events import ClientKey, Turn, TurnSaved, pack_ids
from schemas.ids import ConversationId, MessageId, ReplyId, UserId
from topics.store.contract import Conversation, SavedAt, Store

ADA, BOB = UserId("ada"), UserId("bob")
C1, C2 = ConversationId("c1"), ConversationId("c2")


def exchange(n: int, user: UserId = ADA, conversation: ConversationId = C1, tokens: int = 2) -> list[SavedAt]:
    """The n-th question (offset 10 n) and its answer (10 n + 5) of a user, `tokens` ids each."""
    parent = MessageId(f"a-{n - 1}") if n else None
    ids, reply = pack_ids(range(tokens)), ReplyId(f"r-{n}")
    asked = Turn(MessageId(f"u-{n}"), parent, "user", f"user {n}", ids, "tokenizer", "complete")
    answered = Turn(MessageId(f"a-{n}"), asked.message, "assistant", f"assistant {n}", ids, "tokenizer", "complete")
    question = TurnSaved(user, conversation, asked, reply, "model", 1000 * n, f"key-{n}", f"hash-{n}")
    answer = TurnSaved(user, conversation, answered, reply, "model", 1000 * n + 500, reason="stop", prompt_tokens=9)
    return [SavedAt(10 * n, question), SavedAt(10 * n + 5, answer)]


def exchanges(count: int, tokens: int = 2) -> list[SavedAt]:
    return [saved for n in range(count) for saved in exchange(n, tokens=tokens)]


def with_status(saved: SavedAt, status: str, offset: int) -> SavedAt:
    turn = dataclasses.replace(saved.saved.turn, status=status)
    return SavedAt(offset, dataclasses.replace(saved.saved, turn=turn))


def names(turns: Sequence[Turn | TurnSaved]) -> list[str]:
    return [turn.message if isinstance(turn, Turn) else turn.turn.message for turn in turns]


def content(store: Store, user: UserId) -> object:
    return (
        store.history(user, C1, 10**6),
        store.conversations(user, 100),
        store.messages(user, C1, 100),
        [store.turns_of_reply(user, ReplyId(f"r-{n}")) for n in range(5)],
        [store.reply_for_key(user, C1, f"key-{n}") for n in range(5)],
    )


def test_history_is_the_newest_turns_that_fit_oldest_first(store: Store) -> None:
    store.save(exchanges(3, tokens=4))
    assert names(store.history(ADA, C1, 12).turns) == ["a-1", "u-2", "a-2"]
    assert names(store.history(ADA, C1, 15).turns) == ["a-1", "u-2", "a-2"]
    assert names(store.history(ADA, C1, 3).turns) == []


def test_history_gives_turns_as_they_were_saved(store: Store) -> None:
    saved = exchanges(1)
    store.save(saved)
    assert store.history(ADA, C1, 100).turns == tuple(turn.saved.turn for turn in saved)


def test_history_tells_every_key_used_since_then_whatever_fits(store: Store) -> None:
    store.save(exchanges(3))
    newer = tuple(ClientKey(f"key-{n}", f"hash-{n}", ReplyId(f"r-{n}")) for n in (1, 2))
    assert store.history(ADA, C1, 0, keys_since_ms=1000).keys == newer
    assert len(store.history(ADA, C1, 0).keys) == 3


def test_an_answer_that_was_saved_late_follows_its_question(store: Store) -> None:
    (first, answer), second = exchange(0), exchange(1)
    store.save([first, *second, SavedAt(99, answer.saved)])
    assert names(store.history(ADA, C1, 100).turns) == ["u-0", "a-0", "u-1", "a-1"]
    assert names(store.messages(ADA, C1, 3)) == ["a-0", "u-1", "a-1"]


def test_the_newer_version_of_a_message_stays_and_keeps_its_place(store: Store) -> None:
    question, answer = exchange(0)
    flagged = with_status(answer, "flagged", 77)
    store.save([question, flagged, *exchange(1)])
    store.save([answer])
    history = store.history(ADA, C1, 100)
    assert names(history.turns) == ["u-0", "a-0", "u-1", "a-1"]
    assert [turn.status for turn in history.turns] == ["complete", "flagged", "complete", "complete"]


def test_conversations_come_newest_first_and_page_by_page(store: Store) -> None:
    store.save(exchange(0, conversation=C1) + exchange(1, conversation=C2) + exchange(2, conversation=C1))
    newest, oldest = store.conversations(ADA, 10)
    assert newest == Conversation(C1, 0, 2500, 4, "user 0")
    assert oldest == Conversation(C2, 1000, 1500, 2, "user 1")
    assert store.conversations(ADA, 1) == (newest,)
    assert store.conversations(ADA, 1, before=newest.cursor) == (oldest,)
    assert store.conversations(ADA, 1, before=oldest.cursor) == ()


def test_messages_page_backwards(store: Store) -> None:
    store.save(exchanges(3))
    assert names(store.messages(ADA, C1, 2)) == ["u-2", "a-2"]
    assert names(store.messages(ADA, C1, 3, before=MessageId("u-2"))) == ["a-0", "u-1", "a-1"]
    assert names(store.messages(ADA, C1, 3, before=MessageId("u-0"))) == []


def test_a_reply_is_found_with_both_its_turns(store: Store) -> None:
    saved = exchanges(2)
    store.save(reversed(saved))
    assert store.turns_of_reply(ADA, ReplyId("r-1")) == (saved[2].saved, saved[3].saved)
    assert store.turns_of_reply(BOB, ReplyId("r-1")) == ()


def test_a_client_key_names_the_reply_that_won_it_first(store: Store) -> None:
    first, second = exchange(0)[0], exchange(1)[0]
    store.save([SavedAt(second.offset, dataclasses.replace(second.saved, client_key="key-0")), first])
    assert store.reply_for_key(ADA, C1, "key-0") == ClientKey("key-0", "hash-0", ReplyId("r-0"))
    assert store.reply_for_key(ADA, C2, "key-0") is None


def test_two_users_conversations_of_one_name_never_meet(store: Store) -> None:
    store.save(exchange(0, user=ADA) + exchange(1, user=BOB))
    assert names(store.messages(ADA, C1, 10)) == ["u-0", "a-0"]
    assert names(store.history(BOB, C1, 100).turns) == ["u-1", "a-1"]
    assert store.conversations(BOB, 10)[0].count == 2


def test_what_is_unknown_is_empty(store: Store) -> None:
    nobody = UserId("nobody")
    assert content(store, nobody) == (store.history(nobody, C2, 1), (), (), [()] * 5, [None] * 5)
    assert store.history(nobody, C1, 100).turns == store.history(nobody, C1, 100).keys == ()
    store.save(exchanges(1))
    assert store.messages(ADA, C1, 10, before=MessageId("unknown")) == ()


def test_saving_nothing_is_nothing(store: Store) -> None:
    store.save([])
    assert store.conversations(ADA, 10) == ()


VERSIONS = exchanges(4) + [with_status(saved, "flagged", 1000 + n) for n, saved in enumerate(exchanges(4))]


@given(
    order=st.permutations(range(len(VERSIONS))),
    repeats=st.lists(st.sampled_from(range(len(VERSIONS))), max_size=12),
    batch=st.integers(1, len(VERSIONS)),
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_and_repetition_of_saves_is_the_same_content(
    store: Store, order: list[int], repeats: list[int], batch: int
) -> None:
    one, other = UserId(uuid4().hex), UserId(uuid4().hex)
    store.save(versions_of(one))
    shuffled = [versions_of(other)[n] for n in [*order, *repeats]]
    for start in range(0, len(shuffled), batch):
        store.save(shuffled[start : start + batch])
    assert _as_user(content(store, other), other) == _as_user(content(store, one), one)
    assert store.conversations(other, 1)[0].count == 8


def _as_user(value: object, user: UserId) -> str:
    return repr(value).replace(user, "user")


def versions_of(user: UserId) -> list[SavedAt]:
    return [SavedAt(v.offset, dataclasses.replace(v.saved, user=user)) for v in VERSIONS]
