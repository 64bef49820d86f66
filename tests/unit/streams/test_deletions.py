"""What was deleted stays deleted: whatever intake repeats, whenever settlement's turns come, in whatever order they are
saved, the store holds what was accepted after each conversation's last deletion in log order, and that alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.events import ConversationDeleted, MessagePosted, TurnSaved
from schemas.ids import ConversationId, ReplyId, UserId, assistant_message_id, user_message_id
from schemas.reply_records import Accepted, Stopped
from schemas.tokenizer import ChatTokenizer
from streams.reply_table import Watched
from streams.settlement import assistant_turn
from tests.unit.streams.intakes import Key, Script
from tests.unit.streams.staged import folded
from tests.unit.streams.test_intake_replays import TALK, logs, outputs
from topics.catalog import TURNS
from topics.outputs import Output
from topics.store.contract import SavedAt
from topics.store.sqlite import SqliteStore

ROOMS = (("alice", "c"), ("bob", "c"), ("alice", "d"))


def expected(script: Script) -> dict[Key, list[str]]:
    """Message ids by conversation, straight from the log: those of replies accepted since its last deletion."""
    found: defaultdict[Key, list[str]] = defaultdict(list)
    for message, written in zip(script.log, script.outputs, strict=True):
        if isinstance(message.event, ConversationDeleted):
            found[message.event.user, message.event.conversation].clear()
        for output in outputs(written):
            if isinstance(output.event, Accepted):
                reply = ReplyId(output.key)
                key = (output.event.user, output.event.conversation)
                found[key] += user_message_id(reply), assistant_message_id(reply)
    return found


def records(script: Script, settled_late: Sequence[bool], cut: int, crash: int) -> list[Any]:
    """`turns` of a life in which intake repeats what it did between two records, and replies end sooner or later."""
    steps = [outputs(written) for written in script.outputs]
    early: list[Any] = []
    late: list[Any] = []
    for index, step in enumerate([*steps[:crash], *steps[cut:]]):
        answers = [assistant(output) for output in step if isinstance(output.event, Accepted)]
        (late if settled_late[index % len(settled_late)] else early).extend(answers)
        early += [output.event for output in step if output.place.topic == TURNS]
    return [*early, *late]


def assistant(output: Output) -> TurnSaved:
    """The turn of a reply that was stopped before its first token."""
    [reply] = folded([output, replace(output, event=Stopped("user"))]).values()
    return assistant_turn(Watched(reply, 0, 0), output.event, 0)


@pytest.fixture(scope="module")
def store() -> Iterator[SqliteStore]:
    with closing(SqliteStore(Path(":memory:"))) as opened:
        yield opened


def held(store: SqliteStore, saved: Sequence[SavedAt]) -> dict[Key, tuple[list[str], str | None]]:
    """Message ids and title of each conversation after those saves, made for users of that name and no other."""
    anew = uuid4().hex
    for record in saved:
        store.save([SavedAt(record.offset, replace(record.saved, user=UserId(record.saved.user + anew)))])
    found = {}
    for user, conversation in ((UserId(user), ConversationId(conversation)) for user, conversation in ROOMS):
        key = (UserId(user + anew), conversation)
        line = store.conversation(*key)
        messages = [turn.turn.message for turn in store.messages(*key, 1000)]
        found[user, conversation] = messages, line and line.title
    return found


@settings(max_examples=40)
@given(
    actions=logs(*TALK, "load", "post", "delete", "rename"),
    late=st.lists(st.booleans(), min_size=1, max_size=5),
    cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    shuffled=st.randoms(use_true_random=False),
)
def test_nothing_that_was_deleted_comes_back_and_nothing_said_since_is_lost(
    tokenizer: ChatTokenizer,
    store: SqliteStore,
    actions: list[tuple[int, str, int, int]],
    late: list[bool],
    cuts: tuple[float, float],
    shuffled: Any,
) -> None:
    script = Script(tokenizer)
    script.run(actions)
    cut, crash = sorted(round(at * len(script.log)) for at in cuts)
    saved = [SavedAt(offset, event) for offset, event in enumerate(records(script, late, cut, crash))]
    in_order = held(store, saved)
    shuffled.shuffle(saved)
    want = expected(script)
    assert {key: sorted(messages) for key, (messages, _) in in_order.items()} == {k: sorted(want[k]) for k in in_order}
    assert held(store, saved) == in_order


def test_the_script_deletes_in_one_millisecond_what_it_says_before_and_not_what_it_says_after(
    tokenizer: ChatTokenizer, store: SqliteStore
) -> None:
    script = Script(tokenizer)
    post, load, delete, name = ("post", 0, 0), ("load", 0, 1), ("delete", 0, 0), ("rename", 0, 0)
    script.run([(0, *action) for action in (post, load, name, delete, post, delete, post, name)])
    saved = [SavedAt(offset, event) for offset, event in enumerate(records(script, [True], 0, len(script.log)))]
    alice = (UserId("alice"), ConversationId("c"))
    assert held(store, saved)[alice] == (expected(script)[alice], "name 7")
    assert sum(isinstance(message.event, MessagePosted) for message in script.log) == 3
