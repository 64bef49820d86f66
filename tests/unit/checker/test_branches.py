"""The checker knows the tree of a conversation, what prompts of it have, and what is to be gone of it."""

from dataclasses import replace
from typing import Any

import pytest

from schemas.events import ConversationDeleted, ConversationRenamed, TurnSaved
from schemas.ids import MessageId, assistant_message_id, user_message_id
from tests.checker.branches import branches_of
from tests.checker.deletions import lives_of
from tests.checker.history import Entry, History, Remembered
from tests.checker.rules import check
from tests.checker.telling import tell
from tests.unit.checker.histories import POSTS, REPLY, broken, clean, entries, with_entries, with_events
from tests.unit.streams.staged import T0, accepted, posted, reply_id
from tests.unit.streams.staged import turn as turn_of
from topics.catalog import MESSAGES, REPLIES, TURNS
from topics.log import Place

KEY = POSTS[0].user, POSTS[0].conversation
ASKED, SAID = user_message_id(REPLY), assistant_message_id(REPLY)
# The first question, another answer to it, the first edited, and one that goes on after the first answer.
TALK = (
    posted(1, "one"),
    posted(2, "", parent=user_message_id(reply_id(1))),
    posted(3, "two", parent=MessageId("root")),
    posted(4, "three", parent=assistant_message_id(reply_id(1))),
    posted(5, "four"),
)
STATUSES = ("complete", "failed", "flagged", "stopped", "complete")


def talk() -> History:
    replies, turns = [], []
    parents = {1: None, 3: None, 4: assistant_message_id(reply_id(1)), 5: assistant_message_id(reply_id(4))}
    for n, (message, status) in enumerate(zip(TALK, STATUSES, strict=True), start=1):
        question = user_message_id(message.reply) if message.text else message.parent
        assert question
        replies.append((message.reply, accepted(message.reply, user_message=question)))
        if message.text:
            asked = replace(turn_of("user", map(ord, message.text), message=question), parent=parents[n])
            turns.append(TurnSaved(*KEY, asked, message.reply, "tiny", T0))
        said = turn_of("assistant", map(ord, f"a{n}"), message=assistant_message_id(message.reply))
        turns.append(TurnSaved(*KEY, replace(said, parent=question, status=status), message.reply, "tiny", T0))
    messages = entries(MESSAGES, *(("", message) for message in TALK))
    return History(messages + entries(REPLIES, *replies) + entries(TURNS, *(("", turn) for turn in turns)))


def test_the_turns_of_a_reply_are_those_of_its_branch() -> None:
    history, told = talk(), tell(talk().of(REPLIES))
    posts = {entry.event.reply: [entry] for entry in history.of(MESSAGES)}
    branches = branches_of(history, told, posts, lives_of(history))
    spelled = {n: [bytes(ids).decode() for _, ids in branches.turns(reply_id(n))] for n in range(1, 6)}
    assert spelled == {
        1: ["one"],
        2: ["one"],
        3: ["two"],
        4: ["one", "a1", "three"],
        5: ["one", "a1", "three", "a4", "four"],
    }
    assert {v.rule for v in check(history)} & {"branch", "prompt"} == set()


@pytest.mark.parametrize("n", range(9))
def test_a_turn_that_hangs_elsewhere_is_found(n: int) -> None:
    history = talk()
    turns = list(history.of(TURNS))
    wrong = replace(turns[n].event.turn, parent=MessageId("elsewhere"))
    turns[n] = replace(turns[n], event=replace(turns[n].event, turn=wrong))
    others = tuple(entry for entry in history.entries if entry.place.topic != TURNS)
    assert "branch" in {v.rule for v in check(replace(history, entries=others + tuple(turns)))}


def test_what_intake_still_holds_of_a_deleted_conversation_is_found() -> None:
    held = Remembered(*KEY, (ASKED,), None)
    assert broken(replace(clean(), remembered=(held,))) == set()
    assert "gone" in broken(replace(deleted(), remembered=(held,)))
    assert "gone" in broken(replace(deleted(), remembered=(Remembered(*KEY, (), SAID),)))


def test_words_of_a_deleted_conversation_in_the_stores_file_are_found() -> None:
    history = with_events(MESSAGES, lambda message: replace(message, text=f"a secret of {message.user}"))
    kept = replace(history, store_bytes=b"...a secret of alice...")
    assert "gone" not in broken(kept)
    assert "gone" in broken(replace(kept, entries=(*kept.entries, *deleted().entries[-1:])))


@pytest.mark.parametrize(
    ("events", "title", "right"),
    [
        (("new",), "new", True),
        (("old", "new"), "old", False),
        (("new",), "ask", False),
        (("old", None), None, True),
        (("old", None), "old", False),
    ],
)
def test_a_title_that_is_not_the_last_name_is_found(events: tuple[Any, ...], title: str | None, right: bool) -> None:
    changes = [ConversationDeleted(*KEY) if name is None else ConversationRenamed(*KEY, name) for name in events]
    added = [Entry(Place(MESSAGES, 0), 10 + n, T0, b"", change) for n, change in enumerate(changes)]
    history = with_entries(MESSAGES, lambda found: [*found, *added])
    assert ("title" in broken(replace(history, titles={KEY: title}))) is not right


def deleted() -> History:
    gone = Entry(Place(MESSAGES, 0), 10, T0, b"", ConversationDeleted(*KEY))
    return with_entries(MESSAGES, lambda found: [*found, gone])
