"""The supervisor's snapshots: a restart from one, at whatever moment, is as if there had been none."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schemas import reply_records as r
from schemas.ids import ReplyId
from schemas.kept_records import ReplyKept
from streams.reply_table import REMEMBERED_MS
from streams.snapshots import kept_of
from streams.supervisor import SNAPSHOT_BEATS
from tests.unit.streams.staged import (
    ONE,
    REPLY_LOG,
    T0,
    TWO,
    accepted,
    dispatched,
    finished,
    origin,
    reply_id,
    started,
    tokens,
)
from tests.unit.streams.supervised import R1, Supervised, restarted

RECORDS: tuple[Any, ...] = (
    *(accepted(R1), accepted(R1, checked=True, on_disconnect="cancel")),
    *(dispatched(), dispatched(2, TWO), started(), started(2, TWO), r.Preempted(1, ONE)),
    *(tokens(1, "ab"), tokens(3, "c"), tokens(3, "d", 2, TWO), tokens(9, "x")),
    *(r.AttemptOpened(2), r.AttemptOpened(3), r.Cleared(1), finished(3), finished(2)),
    *(r.ListenerAttached("e", "s"), r.ListenerDetached("e", "s"), r.Stopped("user"), r.Stopped("abandoned", 3)),
)


def state(supervised: Supervised) -> dict[ReplyId, ReplyKept]:
    return {reply: kept_of(watched) for reply, watched in supervised.partition.table._watched.items()}


@given(
    history=st.lists(st.tuples(st.sampled_from((R1, reply_id(2))), st.sampled_from(RECORDS)), max_size=40),
    cut=st.integers(0, 40),
    behind=st.integers(0, 5),
)
def test_a_restart_from_a_snapshot_folds_to_the_same(history: list[tuple[ReplyId, Any]], cut: int, behind: int) -> None:
    """Also when the committed position lies before some that the snapshot has: those are not folded twice."""
    whole, first = Supervised(), Supervised()
    for reply, record in history:
        whole.reply(reply, record)
    for reply, record in history[:cut]:
        first.reply(reply, record)
    again = restarted(first)
    again._next[REPLY_LOG] = max(0, again._next[REPLY_LOG] - behind)
    for reply, record in history[again._next[REPLY_LOG] :]:
        again.reply(reply, record)
    assert state(again) == state(whole)


def test_a_snapshot_is_due_at_the_start_and_every_few_beats_and_the_position_is_its_own() -> None:
    supervisor = Supervised()
    supervisor.running()
    assert ([output.key for output in supervisor.snapshot()], supervisor.position.offset) == ([R1], 4)
    supervisor.reply(R1, tokens(3, "c"))
    supervisor.beats(SNAPSHOT_BEATS - 1)
    assert (supervisor.snapshot(), supervisor.position.offset) == ([], 4)
    supervisor.beats()
    assert ([output.event.offset for output in supervisor.snapshot()], supervisor.position.offset) == ([4], 5)
    supervisor.beats(SNAPSHOT_BEATS)
    assert supervisor.snapshot() == []


def test_an_ended_reply_keeps_its_end_without_its_tokens_and_is_forgotten_later() -> None:
    supervisor = Supervised()
    supervisor.running()
    supervisor.reply(R1, finished(2))
    (output,) = supervisor.snapshot()
    assert (output.event.state, output.event.ids, output.event.accepted) == ("FINISHED", b"", None)
    after = restarted(supervisor)
    after.reply(R1, accepted(R1), tokens(3, "x"))
    assert list(after.partition.table.open()) == []
    supervisor.reply(reply_id(2), accepted(reply_id(2)), at_ms=T0 + REMEMBERED_MS)
    supervisor.beats(SNAPSHOT_BEATS)
    assert [(o.key, o.event is None) for o in supervisor.snapshot()] == [(R1, True), (reply_id(2), False)]


def test_the_request_to_be_continued_survives() -> None:
    supervisor = Supervised()
    supervisor.running()
    after = restarted(supervisor)
    (wanted,) = after.reply(R1, r.AttemptOpened(2)).wanted
    assert (wanted.origin, len(wanted.accepted)) == (origin(), 8)


def test_a_record_of_the_changelog_that_is_no_state_of_a_reply_says_nothing() -> None:
    supervisor, after = Supervised(), Supervised()
    supervisor.running()
    (output,) = supervisor.snapshot()
    for wrong in ({"state": "x"}, {"ids": b"123"}):
        after.take_over(supervisor.position, [replace(output, event=replace(output.event, **wrong))])
        assert state(after) == {}
