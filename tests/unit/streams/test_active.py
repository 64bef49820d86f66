"""What intake holds of conversations: the turns of those that were touched last, as far as there is room for them."""

from __future__ import annotations

import pytest

from schemas.events import GenerateRequested, unpack_ids
from schemas.ids import assistant_message_id
from schemas.reply_records import Accepted, Redirected
from schemas.tokenizer import ChatTokenizer
from streams.active import TURN_COST_BYTES
from streams.stage import HistoryWanted
from tests.unit.streams.intakes import PLACE, Changelog, Intakes, answered, keep, loaded, restored
from tests.unit.streams.staged import answers, events, posted, reply_id

# Two conversations of one short exchange each.
TWO = 4 * TURN_COST_BYTES + 200


@pytest.fixture
def intake(tokenizer: ChatTokenizer) -> Intakes:
    made = Intakes(tokenizer, TWO)
    for n, conversation in enumerate(("a", "b", "c"), 1):
        made.ready("alice", conversation)
        made.exchange(posted(n, conversation=conversation))
    return made


def dropped(intake: Intakes) -> dict[str, bool]:
    return {conversation: kept.dropped for (_, conversation), kept in intake.stage._partitions[PLACE].kept.items()}  # type: ignore[attr-defined]


def test_the_turns_of_the_longest_untouched_go_first(intake: Intakes) -> None:
    assert dropped(intake) == {"a": True, "b": False, "c": False}
    intake.exchange(posted(4, conversation="b"))
    assert dropped(intake)["c"], "b has been touched since, and has grown"


def test_what_was_dropped_is_asked_for_from_where_it_goes_on(intake: Intakes) -> None:
    message = posted(4, conversation="a")
    leaf = assistant_message_id(reply_id(1))
    assert intake.take(message).wanted == (HistoryWanted(message.user, message.conversation, leaf),)
    assert isinstance(intake.told(loaded("alice", "a", leaf=leaf))[reply_id(4)], Accepted)


def test_a_key_is_known_though_its_turns_were_dropped(intake: Intakes) -> None:
    repeat = posted(4, conversation="a", client_key="key-1")
    assert intake.told(repeat) == {reply_id(4): Redirected(reply_id(1))}


def test_conversations_in_progress_are_held_whatever_they_take(tokenizer: ChatTokenizer) -> None:
    intake = Intakes(tokenizer, 0)
    intake.ready()
    decision = intake.take(posted(1, "x" * 100))
    assert dropped(intake) == {"c": False}
    [accepted] = answers(decision).values()
    intake.take(answered(tokenizer, posted(1), accepted, "done"))
    assert dropped(intake) == {"c": True}


def test_a_restart_finds_the_same_order(intake: Intakes, tokenizer: ChatTokenizer) -> None:
    changelog: Changelog = {}
    intake.exchange(posted(4, conversation="b"))
    keep(changelog, intake.stage.changes())
    again = restored(tokenizer, dict(sorted(changelog.items(), reverse=True)), TWO)
    assert [*again._partitions[PLACE].kept] == [*intake.stage._partitions[PLACE].kept]  # type: ignore[attr-defined]
    assert again._partitions[PLACE].held_bytes == intake.stage._partitions[PLACE].held_bytes  # type: ignore[attr-defined]


def test_nothing_is_held_where_there_is_no_room_and_all_goes_on(tokenizer: ChatTokenizer) -> None:
    intake = Intakes(tokenizer, 0)
    intake.ready()
    intake.exchange(posted(1))
    intake.take(posted(2, "next"))
    decision = intake.take(loaded(leaf=assistant_message_id(reply_id(1))))
    assert isinstance(answers(decision)[reply_id(2)], Accepted)
    [request] = events(decision.then, GenerateRequested)
    assert unpack_ids(request.prompt)
