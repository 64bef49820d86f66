"""The runner on the in-memory twin: what no record can hold is put aside, and nothing beside it is lost."""

from dataclasses import replace

import pytest

from schemas.reply_records import Accepted, AttemptOpened, Failed
from schemas.tokenizer import ChatTokenizer
from streams.router import Router
from streams.runtime.runner import BATCH
from streams.settlement import Settlement
from streams.stage import Decision, Message
from streams.supervisor import Supervisor
from tests.unit.streams.cells import CODEC, IntakeCell
from tests.unit.streams.staged import ONE, accepted, beat, posted, reply_id, request
from topics.catalog import (
    DEAD_LETTERS,
    LARGEST_RECORD,
    LARGEST_REQUEST,
    MESSAGES,
    REPLIES,
    USAGE,
    generate_topic,
    lane_topic,
)
from topics.log import Place
from topics.outputs import LETTER_VALUE_BYTES

INBOX = Place(MESSAGES, 0)
PAID = generate_topic("main", "paid")


@pytest.fixture
def cell(tokenizer: ChatTokenizer) -> IntakeCell:
    return IntakeCell(tokenizer)


def test_a_message_with_a_deadline_that_no_record_holds_is_refused_alone(cell: IntakeCell) -> None:
    cell.post(posted(1, deadline_ms=2**63 - 1, conversation="c"), posted(2, conversation="c"))
    cell.step(cell.intake(), times=3)
    assert [record.reason for record in cell.of_replies()[reply_id(1)]] == ["internal"]
    assert cell.last_words()[reply_id(2)] is Accepted
    assert [letter.origin.offset for letter in cell.events(DEAD_LETTERS)] == [0]


def test_garbage_as_large_as_a_record_may_be_is_put_aside_and_the_stage_goes_on(cell: IntakeCell) -> None:
    cell.raw(INBOX, b"alice", b"x" * LARGEST_RECORD)
    cell.post(posted(1))
    cell.step(cell.intake(), times=3)
    [letter] = cell.events(DEAD_LETTERS)
    assert f"{LARGEST_RECORD - LETTER_VALUE_BYTES} of the value are not in this letter" in letter.error
    assert cell.last_words() == {reply_id(1): Accepted}


def test_what_is_too_large_for_a_lane_ends_its_reply_and_nobody_elses(cell: IntakeCell) -> None:
    long = request(2, prompt="ab")
    for asked in (request(1), replace(long, prompt=long.prompt * (LARGEST_REQUEST // len(long.prompt))), request(3)):
        cell.raw(Place(PAID, 0), asked.reply.encode(), CODEC.encode(asked))
    cell.write(cell.routes.replica_beat("main/0", beat(ONE, capacity=9)))
    cell.step(cell.runner(Router("main", 9, cell.routes)), times=3)
    assert cell.of_replies()[reply_id(2)] == [Failed("internal")]
    assert [assigned.request.reply for assigned in cell.events(lane_topic("main", "paid"))] == [
        reply_id(1),
        reply_id(3),
    ]
    assert len(cell.events(DEAD_LETTERS)) == 1


class Overflowing(Settlement):
    """Decides what no record can hold whenever it is told to."""

    def apply(self, message: Message) -> Decision:
        bad = message.event == Failed("overflow")
        output = self._routes.reply(reply_id(9), AttemptOpened(2**63)) if bad else None
        return Decision(first=(output,)) if output else super().apply(message)

    def refused(self, message: Message) -> Decision:
        return Decision(first=(self._routes.reply(reply_id(9), Failed("internal")),))


def test_a_decision_that_no_record_can_hold_is_put_aside_and_those_beside_it_are_done(cell: IntakeCell) -> None:
    records = (accepted(reply_id(1)), Failed("overflow"), Failed("deadline"))
    cell.write(*(cell.routes.reply(reply_id(1), record) for record in records))
    cell.step(cell.runner(Overflowing(cell.routes)), times=3)
    assert cell.of_replies()[reply_id(9)] == [Failed("internal")]
    assert [usage.reply for usage in cell.events(USAGE)] == [reply_id(1)]
    [letter] = cell.events(DEAD_LETTERS)
    assert "could not be decided" in letter.error and letter.origin.offset == 1


class Watching(Supervisor):
    """Counts what it has read when it is told that it has caught up."""

    read, caught_up_at = 0, ()

    def apply(self, message: Message) -> Decision:
        self.read += message.place.topic == REPLIES
        return super().apply(message)

    def caught_up(self, place: Place) -> None:
        super().caught_up(place)
        self.caught_up_at += (self.read,)


@pytest.mark.parametrize("count", [0, 1, BATCH + 1])
def test_a_stage_is_told_when_it_has_read_all_that_was_there(cell: IntakeCell, count: int) -> None:
    watching = Watching(ONE, cell.routes)
    cell.write(*[cell.routes.reply(reply_id(1), Failed("x"))] * count)
    runner = cell.runner(watching)
    cell.step(runner, times=4)
    assert watching.caught_up_at == (count,)
    cell.write(cell.routes.reply(reply_id(1), accepted(reply_id(1))))
    cell.step(runner, times=4)
    assert watching.caught_up_at == (count,)
