"""Settlement: each accepted reply is paid for once, however often the log is read again."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import reply_records as r
from schemas.events import ReplySettled, TurnSaved, UsageRecorded, unpack_ids
from schemas.ids import ReplyId
from streams.reply_table import REMEMBERED_MS
from streams.settlement import Settlement
from streams.stage import Decision, Message
from tests.unit.streams.staged import (
    ONE,
    REPLY_LOG,
    ROUTES,
    T0,
    TWO,
    Driven,
    accepted,
    events,
    finished,
    joined,
    reply_id,
    started,
    tokens,
)
from topics.log import Position

ENDS: dict[str, tuple[Any, str, str]] = {
    "finished": (finished(2), "finished", "complete"),
    "stopped": (r.Stopped("user"), "stopped", "stopped"),
    "abandoned": (r.Stopped("abandoned", 99), "stopped", "stopped"),
    "failed": (r.Failed("deadline"), "failed", "failed"),
    "flagged": (r.Flagged(2, "violence"), "flagged", "flagged"),
}
R1 = reply_id(1)


@pytest.fixture
def settlement() -> Driven:
    return Driven(Settlement(ROUTES), REPLY_LOG)


@pytest.mark.parametrize("name", ENDS)
def test_every_end_leaves_one_usage_record_one_turn_and_word_to_intake(settlement: Driven, name: str) -> None:
    end, state, status = ENDS[name]
    opened = settlement.reply(R1, accepted(R1, checked=name == "flagged"), started(), tokens(1, "hi"))
    decision = settlement.reply(R1, end, end)
    [usage] = events(decision.committed, UsageRecorded)
    [settled, saved] = events(decision.first)
    assert opened == Decision()
    assert (usage.state, usage.completion_tokens, usage.prompt_tokens, usage.cached_tokens) == (state, 2, 5, 3)
    assert (saved.turn.status, saved.turn.text, settled.turn) == (status, "hi", saved.turn)
    assert (settled.reply, saved.reply, usage.reply) == (R1, R1, R1)


def test_a_shed_reply_is_paid_for_with_nothing(settlement: Driven) -> None:
    decision = settlement.reply(R1, accepted(R1), r.Shed("capacity", 1000))
    [usage] = events(decision.committed)
    assert (usage.state, usage.completion_tokens, usage.fingerprint) == ("shed", 0, None)
    assert events(decision.first, TurnSaved)[0].turn.status == "failed"


def test_usage_and_turn_hold_the_tokens_of_the_log_over_all_attempts(settlement: Driven) -> None:
    records = (started(), tokens(1, "ab"), r.AttemptOpened(2), tokens(3, "x"), started(2, TWO), tokens(3, "cd", 2, TWO))
    settlement.reply(R1, accepted(R1), *records)
    decision = settlement.reply(R1, finished(4, 2, TWO), at_ms=T0 + 9)
    [usage], [saved] = events(decision.committed), events(decision.first, TurnSaved)
    assert (usage.attempts, usage.completion_tokens, usage.accepted_ms, usage.ended_ms) == (2, 4, T0, T0 + 9)
    assert (saved.turn.text, bytes(unpack_ids(saved.turn.token_ids))) == ("abcd", b"abcd")
    assert saved.turn.parent == accepted(R1).user_message


def test_the_turn_of_an_answer_without_a_question_of_its_own_keeps_what_came_with_the_wish(settlement: Driven) -> None:
    settlement.reply(R1, accepted(R1, client_key="k", body_hash="h", system="Say less."), started())
    [saved] = events(settlement.reply(R1, finished(0)).first, TurnSaved)
    assert (saved.client_key, saved.body_hash, saved.system) == ("k", "h", "Say less.")


def test_no_more_of_a_prompt_was_cached_than_it_has_when_its_continuation_found_its_own_tokens(
    settlement: Driven,
) -> None:
    again = replace(started(2, TWO), cached_tokens=16)
    settlement.reply(R1, accepted(R1), started(), tokens(1, "ab"), r.AttemptOpened(2), again)
    decision = settlement.reply(R1, finished(2, 2, TWO))
    [usage], [settled] = events(decision.committed), events(decision.first, ReplySettled)
    assert (usage.prompt_tokens, usage.cached_tokens, settled.cached_tokens) == (5, 5, 5)


def test_usage_names_the_fingerprints_of_all_who_wrote_it(settlement: Driven) -> None:
    other = replace(started(2, TWO), fingerprint="other")
    settlement.reply(R1, accepted(R1), started(), r.AttemptOpened(2), other, r.AttemptOpened(3), started(3, ONE))
    [usage] = events(settlement.reply(R1, finished(0, 3, ONE)).committed)
    assert (usage.fingerprint, usage.fingerprints) == ("print", ("print", "other"))


def test_a_checked_reply_counts_what_was_cleared(settlement: Driven) -> None:
    settlement.reply(R1, accepted(R1, checked=True), started(), tokens(1, "abcd"), r.Cleared(3))
    decision = settlement.reply(R1, r.Stopped("user"))
    assert events(decision.committed)[0].completion_tokens == 3
    assert events(decision.first, TurnSaved)[0].turn.text == "abc"


@pytest.mark.parametrize("record", [r.Rejected("conflict"), r.Redirected(reply_id(2)), started(), r.Failed("internal")])
def test_what_was_never_accepted_leaves_nothing(settlement: Driven, record: Any) -> None:
    assert settlement.reply(R1, record, record) == Decision()


def test_a_stateless_reply_leaves_no_turn(settlement: Driven) -> None:
    decision = settlement.reply(R1, accepted(R1, stored=False), r.Stopped("user"))
    [settled] = events(decision.first)
    assert isinstance(settled, ReplySettled) and settled.turn is None
    assert len(decision.committed) == 1


def test_accepted_again_after_the_end_opens_nothing_even_after_a_restart() -> None:
    first = Driven(Settlement(ROUTES), REPLY_LOG)
    first.reply(R1, accepted(R1), r.Failed("deadline"))
    committed = first.stage.position(REPLY_LOG, 2)
    later = T0 + REMEMBERED_MS - 1
    assert first.reply(R1, accepted(R1), r.Stopped("user"), at_ms=later) == Decision()
    again = Driven(Settlement(ROUTES), REPLY_LOG, committed=committed)
    assert again.reply(R1, accepted(R1), r.Failed("deadline")) == Decision()
    assert again.reply(R1, accepted(R1), r.Stopped("user"), at_ms=later) == Decision()


def test_the_low_water_mark_waits_for_the_oldest_reply_that_may_matter(settlement: Driven) -> None:
    def mark() -> str:
        return settlement.stage.position(REPLY_LOG, len(settlement.log[REPLY_LOG])).metadata

    settlement.reply(R1, accepted(R1))
    settlement.reply(reply_id(2), accepted(reply_id(2)), r.Failed("deadline"))
    assert mark() == "L=0"
    settlement.reply(R1, r.Stopped("user"))
    settlement.reply(reply_id(3), accepted(reply_id(3)), at_ms=T0 + REMEMBERED_MS)
    assert mark() == "L=4"


def test_a_key_that_is_no_reply_of_the_partition_is_passed_over(settlement: Driven) -> None:
    elsewhere = reply_id(1, partition=3)
    assert settlement.reply(elsewhere, accepted(elsewhere), r.Failed("x")) == Decision()
    assert settlement.reply(ReplyId("nonsense"), accepted(R1), r.Failed("x")) == Decision()


SCRIPTS = st.lists(
    st.sampled_from(
        (
            (finished(0),),
            (started(), tokens(1, "abc"), finished(3)),
            (
                started(),
                tokens(1, "ab"),
                r.AttemptOpened(2),
                started(2, TWO),
                tokens(3, "c", 2, TWO),
                finished(3, 2, TWO),
            ),
            (started(), tokens(1, "a"), r.Stopped("user"), tokens(2, "b"), finished(2)),
            (r.Failed("deadline"), "again"),
            (r.Shed("capacity", 1000), started(), "again", r.Failed("late")),
        )
    ),
    min_size=1,
    max_size=6,
)


@dataclass
class Restarted:
    """Settlement over a log that is given; what a crash leaves behind is kept, what was not committed is lost."""

    log: list[Message]
    committed: Position | None = None
    usage: list[UsageRecorded] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)

    def run(self, to: int, commit_every: int) -> None:
        """A process that begins where it must, and dies before offset `to`."""
        stage, pending = Settlement(ROUTES), list[UsageRecorded]()
        start = stage.assigned(REPLY_LOG, self.committed)
        for message in self.log[start or 0 : to]:
            decision = stage.apply(message)
            self.told += events(decision.first)
            pending += events(decision.committed)
            if message.offset % commit_every == 0:
                self.committed = stage.position(REPLY_LOG, message.offset + 1)
                self.usage += pending
                pending.clear()


@st.composite
def reply_logs(draw: st.DrawFn) -> list[Message]:
    """The records of several replies, interleaved; `again` is Accepted by an intake that replays."""
    queues = {
        reply_id(n): [accepted(reply_id(n)), *(accepted(reply_id(n)) if x == "again" else x for x in script)]
        for n, script in enumerate(draw(SCRIPTS))
    }
    log: list[Message] = []
    at_ms = T0
    while queues:
        reply = draw(st.sampled_from(sorted(queues)))
        at_ms += draw(st.sampled_from((0, 1_000, 20_000)))
        log.append(Message(REPLY_LOG, len(log), at_ms, f"{reply}/w/{len(log)}".encode(), queues[reply].pop(0)))
        if not queues[reply]:
            del queues[reply]
    return log


@settings(max_examples=80)
@given(log=reply_logs(), stops=st.lists(st.integers(0, 40), max_size=4), commit_every=st.integers(1, 9))
def test_wherever_it_restarts_every_end_is_settled_once(
    log: list[Message], stops: list[int], commit_every: int
) -> None:
    undisturbed = Driven(Settlement(ROUTES), REPLY_LOG)
    once = joined(undisturbed.stage.apply(message) for message in log)
    restarted = Restarted(log)
    for stop in stops:
        restarted.run(stop, commit_every)
    restarted.run(len(log), commit_every=1)
    assert sorted(restarted.usage, key=lambda usage: usage.reply) == sorted(
        events(once.committed), key=lambda usage: usage.reply
    )
    versions = defaultdict(set)
    for event in restarted.told:
        versions[type(event), event.reply].add(event)
    assert Counter(versions.keys()) == Counter((type(event), event.reply) for event in events(once.first))
    assert all(len(same) == 1 for same in versions.values())
