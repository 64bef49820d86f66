"""Processes that die, leave and come: intake and settlement between them lose nothing and pay for nothing twice."""

from collections import Counter
from functools import partial
from typing import Any

import pytest

from schemas.events import TurnSaved
from schemas.reply import State
from schemas.reply_records import Accepted, Redirected
from schemas.tokenizer import ChatTokenizer
from streams.admission import Model
from streams.intake import Intake
from streams.runtime.runner import Runner
from streams.settlement import Settlement
from tests.unit.streams.cells import Cell, Crash
from tests.unit.streams.staged import SIZES, finished, posted, reply_id, started, tokens
from topics.catalog import REPLIES, TURNS, USAGE, Sizes

MESSAGES = (
    posted(1, client_key="k"),
    posted(2, client_key="k"),
    posted(3, "two", user="bob"),
    posted(4, "other", client_key="k"),
)


class Mortal:
    """Intake, settlement and a replica, stepped in turn; each is made anew when it dies."""

    def __init__(self, tokenizer: ChatTokenizer, crash_at: int = -1) -> None:
        self.cell = Cell(SIZES)
        self.cell.log.crash_at = crash_at
        routes, models = self.cell.routes, {"tiny": Model(tokenizer, "main")}
        stages = (partial(Intake, models, routes), partial(Settlement, routes))
        self._makers = [lambda stage=stage: self.cell.runner(stage()) for stage in stages]
        self._runners = [make() for make in self._makers]
        self.deaths = 0

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            for n in range(len(self._runners)):
                try:
                    self.cell.step(self._runners[n])
                except Crash:
                    self.deaths += 1
                    self._runners[n] = self._makers[n]()
            self._answer()

    def _answer(self) -> None:
        for reply in self.cell.replies().values():
            if reply.state is State.QUEUED:
                said = (started(), tokens(1, "abc"), finished(3))
                self.cell.write(*(self.cell.routes.reply(reply.id, record) for record in said))

    def seen(self) -> tuple[Any, ...]:
        """What everyone else can see of it."""
        replies = {
            reply.id: (reply.state, reply.text, reply.end_id, reply.accepted, reply.reason)
            for reply in self.cell.replies().values()
        }
        turns = {(event.conversation, event.turn.message): event for event in self.cell.events(TURNS)}
        usage = sorted(self.cell.events(USAGE), key=lambda event: event.reply)
        return replies, turns, usage


def lived(tokenizer: ChatTokenizer, crash_at: int = -1) -> Mortal:
    mortal = Mortal(tokenizer, crash_at)
    mortal.cell.write(*(mortal.cell.routes.message(message.user, message) for message in MESSAGES))
    mortal.run(8)
    return mortal


def test_a_life_without_a_crash(tokenizer: ChatTokenizer) -> None:
    replies, turns, usage = lived(tokenizer).seen()
    assert Counter(state for state, *_ in replies.values()) == {"FINISHED": 2, "REDIRECTED": 1, "REJECTED": 1}
    assert Counter(saved.turn.role for saved in turns.values()) == {"user": 2, "assistant": 2}
    assert [record.reply for record in usage] == [reply_id(1), reply_id(3)]


def test_a_crash_at_any_call_to_the_log_changes_nothing_that_can_be_seen(tokenizer: ChatTokenizer) -> None:
    undisturbed = lived(tokenizer)
    expected, calls = undisturbed.seen(), len(undisturbed.cell.log.calls)
    died = 0
    for crash_at in range(calls):
        mortal = lived(tokenizer, crash_at)
        assert mortal.seen() == expected, f"crash in call {crash_at}, {mortal.cell.log.calls[crash_at]}"
        died += mortal.deaths
    assert died >= calls - 2


@pytest.fixture
def wide(tokenizer: ChatTokenizer) -> Cell:
    """Four partitions of users, and the two runners' models beside them."""
    cell = Cell(Sizes(slots=4, users=4, replies=1))
    cell.models = {"tiny": Model(tokenizer, "main")}
    return cell


def intake(cell: Any, instance: str) -> Runner:
    return cell.runner(Intake(cell.models, cell.routes), instance)


def post(cell: Cell, first: int, key: str) -> None:
    for n in range(12):
        message = posted(first + n, user=f"user-{n}", client_key=key)
        cell.write(cell.routes.message(message.user, message))


def test_partitions_move_with_their_state_and_nothing_is_lost_or_done_twice(wide: Cell) -> None:
    one = intake(wide, "a")
    post(wide, 0, "k")
    wide.step(one, times=3)
    two = intake(wide, "b")
    post(wide, 100, "k")
    wide.step(one, two, times=6)
    two.close()
    post(wide, 200, "k")
    wide.step(one, times=6)
    told = wide.of_replies()
    assert [told[reply_id(n)] for n in (*range(100, 112), *range(200, 212))] == [
        [Redirected(reply_id(n))] for n in range(12)
    ] * 2
    assert [type(record) for n in range(12) for record in told[reply_id(n)]] == [Accepted] * 12
    assert len(wide.asked) == 12


def test_both_members_work(wide: Cell) -> None:
    one, two = intake(wide, "a"), intake(wide, "b")
    wide.step(one, two, times=4)
    post(wide, 0, "k")
    wide.step(one, two, times=6)
    writers = Counter((record.key or b"").split(b"/")[1] for record in wide.records(REPLIES))
    assert (len(writers), writers.total()) == (2, 12)
    assert len([event for event in wide.events(TURNS) if isinstance(event, TurnSaved)]) == 12
