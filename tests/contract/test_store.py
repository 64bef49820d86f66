"""The contract of `topics/store/contract.py`, kept by every conversation store."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.events import ClientKey, ConversationDeleted, ConversationRenamed, Turn, TurnSaved, pack_ids
from schemas.ids import ConversationId, MessageId, ReplyId, UserId
from topics.store.contract import TITLE_CHARACTERS, Conversation, SavedAt, Store, title_of
from topics.store.export import exported_conversation, exported_user

ADA, BOB = UserId("ada"), UserId("bob")
C1, C2 = ConversationId("c1"), ConversationId("c2")


def exchange(n: int, user: UserId = ADA, conversation: ConversationId = C1, tokens: int = 2) -> list[SavedAt]:
    """The n-th question (offset 10 n) and its answer (10 n + 5) of a user, `tokens` ids each."""
    parent = MessageId(f"a-{n - 1}") if n else None
    ids, reply = pack_ids(range(tokens)), ReplyId(f"r-{n}")
    asked = Turn(MessageId(f"u-{n}"), parent, "user", f"user {n}", ids, "tokenizer", "complete")
    answered = Turn(MessageId(f"a-{n}"), asked.message, "assistant", f"assistant {n}", ids, "tokenizer", "complete")
    key, posted_ms = f"key-{n}", 1000 * n + 100
    question = TurnSaved(user, conversation, asked, reply, "model", 1000 * n, key, f"hash-{n}", posted_ms=posted_ms)
    answer = TurnSaved(user, conversation, answered, reply, "model", 1000 * n + 500, reason="stop", posted_ms=posted_ms)
    return [SavedAt(10 * n, question), SavedAt(10 * n + 5, answer)]


def deleted(at_ms: int, offset: int = 0, user: UserId = ADA, conversation: ConversationId = C1) -> SavedAt:
    """The n-th exchange is posted at 1000 n + 100."""
    return SavedAt(offset, ConversationDeleted(user, conversation, at_ms))


def renamed(title: str, at_ms: int, offset: int = 0, user: UserId = ADA) -> SavedAt:
    return SavedAt(offset, ConversationRenamed(user, C1, title, at_ms))


def titles(store: Store, user: UserId = ADA) -> list[str]:
    return [line.title for line in store.conversations(user, 100)]


def exchanges(count: int, tokens: int = 2) -> list[SavedAt]:
    return [saved for n in range(count) for saved in exchange(n, tokens=tokens)]


def with_status(saved: SavedAt, status: str, offset: int) -> SavedAt:
    assert isinstance(saved.saved, TurnSaved)
    turn = dataclasses.replace(saved.saved.turn, status=status)
    return SavedAt(offset, dataclasses.replace(saved.saved, turn=turn))


def names(turns: Sequence[Turn | TurnSaved]) -> list[str]:
    return [turn.message if isinstance(turn, Turn) else turn.turn.message for turn in turns]


def content(store: Store, user: UserId) -> object:
    return (
        store.history(user, C1, 10**6),
        store.conversations(user, 100),
        store.messages(user, C1, 100),
        store.path(user, C1, 100),
        store.system(user, C1),
        store.tip(user, C1, MessageId("u-0")),
        store.children(user, C1, [None, MessageId("u-3")]),
        store.conversation(user, C1),
        store.deleted_ms(user, C1),
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
    assert store.history(ADA, C1, 100).turns == tuple(turn.saved.turn for turn in saved)  # type: ignore[union-attr]


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


def branched(n: int, parent: str | None, system: str | None = None) -> list[SavedAt]:
    """The n-th exchange, but as one that follows another message than the one before it."""
    question, answer = exchange(n)
    assert isinstance(question.saved, TurnSaved)
    turn = dataclasses.replace(question.saved.turn, parent=None if parent is None else MessageId(parent))
    return [SavedAt(question.offset, dataclasses.replace(question.saved, turn=turn, system=system)), answer]


def again(n: int, question: str) -> SavedAt:
    """The n-th answer, to an earlier question and under a key of its own."""
    answer = exchange(n)[1]
    assert isinstance(answer.saved, TurnSaved)
    turn = dataclasses.replace(answer.saved.turn, parent=MessageId(question))
    saved = dataclasses.replace(answer.saved, turn=turn, client_key=f"key-{n}", body_hash=f"hash-{n}")
    return SavedAt(answer.offset, saved)


def test_a_branch_is_a_message_and_all_that_it_follows(store: Store) -> None:
    store.save([*exchanges(2), *branched(2, "a-0"), again(3, "u-1")])
    assert names(store.path(ADA, C1, 100)) == ["u-0", "a-0", "u-1", "a-3"]
    assert names(store.path(ADA, C1, 100, MessageId("a-2"))) == ["u-0", "a-0", "u-2", "a-2"]
    assert names(store.path(ADA, C1, 3, MessageId("a-1"))) == ["a-0", "u-1", "a-1"]
    assert store.path(ADA, C1, 100, MessageId("a-9")) == store.path(ADA, C2, 100, MessageId("a-1")) == ()


def test_history_is_of_one_branch_and_its_keys_are_of_all(store: Store) -> None:
    store.save([*exchanges(1), *branched(1, None), again(2, "u-0")])
    history = store.history(ADA, C1, 100, leaf=MessageId("a-1"))
    assert (names(history.turns), history.found) == (["u-1", "a-1"], True)
    assert [key.key for key in history.keys] == ["key-0", "key-1", "key-2"]
    assert names(store.history(ADA, C1, 3, leaf=MessageId("a-0")).turns) == ["a-0"]
    assert not store.history(ADA, C1, 100, leaf=MessageId("a-7")).found
    assert store.reply_for_key(ADA, C1, "key-2") == ClientKey("key-2", "hash-2", ReplyId("r-2"))


def test_what_follows_a_message_is_told_oldest_first_and_the_newest_is_gone_on_with(store: Store) -> None:
    store.save([*branched(4, None), again(2, "u-0"), *exchanges(2), *branched(3, "a-2")])
    children = {None: ("u-0", "u-4"), "u-0": ("a-0", "a-2"), "a-9": ()}
    assert store.children(ADA, C1, [None, MessageId("u-0"), MessageId("a-9")]) == children
    tips = [store.tip(ADA, C1, MessageId(m)) for m in ("u-0", "a-0", "a-2", "u-4", "a-9")]
    assert tips == ["a-3", "a-1", "a-3", "a-4", None]
    assert store.tip(BOB, C1, MessageId("u-0")) is None


def test_the_system_prompt_is_the_one_that_was_given_last(store: Store) -> None:
    store.save([*branched(1, "a-0", "be brief"), *branched(0, None, "be loud"), *exchange(2)])
    assert store.system(ADA, C1) == store.history(ADA, C1, 0).system == "be brief"
    store.save(branched(3, "a-2", ""))
    assert store.system(ADA, C1) == store.system(BOB, C1) == ""
    store.save([deleted(1100, 90), *branched(4, None)])
    assert store.system(ADA, C1) == ""


def test_parents_that_go_round_end_somewhere(store: Store) -> None:
    question, answer = branched(0, "a-0")
    store.save([question, answer])
    assert names(store.path(ADA, C1, 3))[-2:] == ["u-0", "a-0"]
    assert store.tip(ADA, C1, MessageId("u-0")) in ("u-0", "a-0")
    assert len(store.history(ADA, C1, 5).turns) <= 5


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
    childless = {None: (), "u-3": ()}
    lists, none = ((), (), (), "", None, childless, None, 0), ([()] * 5, [None] * 5)
    assert content(store, nobody) == (store.history(nobody, C2, 1), *lists, *none)
    assert store.history(nobody, C1, 100).turns == store.history(nobody, C1, 100).keys == ()
    store.save(exchanges(1))
    assert store.messages(ADA, C1, 10, before=MessageId("unknown")) == ()


def test_saving_nothing_is_nothing(store: Store) -> None:
    store.save([])
    assert store.conversations(ADA, 10) == ()


def test_a_store_keeps_its_name(store: Store) -> None:
    name = store.identity()
    store.save(exchanges(1))
    assert store.identity() == name not in ("", "0")


def test_a_line_of_the_list_can_be_asked_for_alone(store: Store) -> None:
    store.save(exchanges(2))
    assert (store.conversation(ADA, C1),) == store.conversations(ADA, 10)
    assert store.conversation(ADA, C2) is store.conversation(BOB, C1) is None


def test_a_message_is_there_in_its_own_conversation_only(store: Store) -> None:
    store.save(exchanges(1))
    there = [store.has_message(user, c, MessageId("a-0")) for user, c in ((ADA, C1), (ADA, C2), (BOB, C1))]
    assert there == [True, False, False]
    assert not store.has_message(ADA, C1, MessageId("a-1"))


def test_the_latest_name_counts_and_stands_above_the_first_message(store: Store) -> None:
    store.save([*exchanges(1), renamed("second", 200, 90)])
    store.save([renamed("first", 150, 91)])
    assert titles(store) == ["second"]
    store.save([renamed("third", 200, 92), *exchange(1)])
    assert titles(store) == ["third"]


def test_a_title_without_a_name_is_the_question_that_came_first(store: Store) -> None:
    question, answer = exchange(0)
    store.save([SavedAt(0, answer.saved), SavedAt(5, question.saved), *exchange(1)])
    assert titles(store) == ["user 0"]


@pytest.mark.parametrize("late", [False, True], ids=["deleted last", "deleted first"])
def test_a_deletion_erases_what_was_posted_up_to_its_time_and_nothing_later(store: Store, late: bool) -> None:
    turns = [*exchanges(2), renamed("old", 1100), *exchange(2)]
    store.save([deleted(1100), *turns] if late else [*turns, deleted(1100)])
    assert names(store.messages(ADA, C1, 100)) == ["u-2", "a-2"]
    assert store.conversations(ADA, 10) == (Conversation(C1, 2000, 2500, 2, "user 2"),)
    assert store.history(ADA, C1, 100).keys == (ClientKey("key-2", "hash-2", ReplyId("r-2")),)
    assert store.turns_of_reply(ADA, ReplyId("r-1")) == ()
    assert store.deleted_ms(ADA, C1) == 1100


def test_a_deleted_conversation_is_as_unknown_and_its_id_may_be_used_again(store: Store) -> None:
    store.save([*exchanges(1), deleted(500), deleted(400)])
    assert (store.messages(ADA, C1, 10), store.conversations(ADA, 10), store.conversation(ADA, C1)) == ((), (), None)
    assert store.reply_for_key(ADA, C1, "key-0") is None
    store.save(exchange(1))
    assert titles(store) == ["user 1"]


def test_a_deletion_is_of_one_users_one_conversation(store: Store) -> None:
    store.save([*exchange(0), *exchange(1, conversation=C2), *exchange(2, user=BOB), deleted(10**6)])
    assert [line.id for line in store.conversations(ADA, 10)] == [C2]
    assert store.conversation(BOB, C1) is not None


VERSIONS = [
    *exchanges(4),
    *(with_status(saved, "flagged", 1000 + n) for n, saved in enumerate(exchanges(4))),
    deleted(500, 70),
    *(renamed(f"name {at_ms}", at_ms, 1050 + n) for n, at_ms in enumerate((200, 1200, 1200, 800))),
    deleted(300, 1100),
]


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
    assert (store.conversations(other, 1)[0].count, titles(store, other)) == (6, ["name 1200"])


def _as_user(value: object, user: UserId) -> str:
    return repr(value).replace(user, "user")


def versions_of(user: UserId) -> list[SavedAt]:
    return [SavedAt(v.offset, dataclasses.replace(v.saved, user=user)) for v in VERSIONS]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("hello", "hello"),
        ("  two\n\nlines \t here\r\n", "two lines here"),
        ("word " * 40, "word " * 15 + "word\u2026"),
        ("x" * 300, "x" * 79 + "\u2026"),
        ("a " + "x" * 300, "a " + "x" * 77 + "\u2026"),
        ("x" * 80, "x" * 80),
        (" ", ""),
    ],
)
def test_a_title_is_one_line_cut_after_a_word(text: str, title: str) -> None:
    assert title_of(text) == title
    assert len(title) <= TITLE_CHARACTERS


@given(text=st.text(max_size=400))
def test_a_title_is_what_the_text_begins_with(text: str) -> None:
    title = title_of(text)
    assert len(title) <= TITLE_CHARACTERS and len(title.splitlines()) <= 1
    assert " ".join(text.split()).startswith(title.removesuffix("\u2026"))


def test_ten_thousand_turns_are_read_page_by_page(store: Store) -> None:
    records = exchanges(5_000, tokens=10)
    for start in range(0, len(records), 1_000):
        store.save(records[start : start + 1_000])
    pages, before = 0, None
    seen: list[str] = []
    while found := store.messages(ADA, C1, 500, before):
        seen, before, pages = names(found) + seen, found[0].turn.message, pages + 1
    assert (pages, seen) == (20, names([record.saved for record in records if isinstance(record.saved, TurnSaved)]))
    assert names(store.history(ADA, C1, 100, keys_since_ms=4_999_000).turns) == seen[-10:]
    assert store.conversations(ADA, 1)[0].count == 10_000
    document = json.loads("".join(exported_conversation(store, ADA, C1)))
    assert [message["id"] for message in document["conversations"][0]["messages"]] == seen


def test_an_export_of_a_user_has_nothing_of_others_nor_of_what_is_deleted(store: Store) -> None:
    c3 = ConversationId("c3")
    store.save([*exchanges(2), *exchange(0, conversation=C2), *exchange(0, conversation=c3), *exchange(3, user=BOB)])
    store.save([deleted(10**6, conversation=c3)])
    document = json.loads("".join(exported_user(store, ADA, page=2)))
    told = {line["id"]: [message["id"] for message in line["messages"]] for line in document["conversations"]}
    assert told == {"c1": ["u-0", "a-0", "u-1", "a-1"], "c2": ["u-0", "a-0"]}
    assert "".join(exported_conversation(store, ADA, c3)) == ""


def test_an_export_has_a_conversation_that_is_used_while_it_is_written(store: Store) -> None:
    store.save(turn for n in range(5) for turn in exchange(n, conversation=ConversationId(f"c{n}")))
    pieces = exported_user(store, ADA, page=2)
    head = list(itertools.islice(pieces, 3))
    store.save(exchange(9, conversation=ConversationId("c0")))
    written = json.loads("".join([*head, *pieces]))["conversations"]
    assert sorted(one["id"] for one in written) == [f"c{n}" for n in range(5)]


def test_a_parent_is_given_back_as_it_was_saved(store: Store) -> None:
    store.save(exchanges(2))
    assert [saved.turn.parent for saved in store.messages(ADA, C1, 10)] == [None, "u-0", "a-0", "u-1"]
