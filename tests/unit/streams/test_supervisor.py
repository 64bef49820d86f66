"""The supervisor: what is late, lost or no longer wanted, as its own beats go by."""

from dataclasses import replace
from typing import Any

import pytest

from schemas import reply_records as r
from schemas.events import AttemptDropped, SupervisorBeat, unpack_ids
from schemas.ids import Incarnation, ReplyId
from streams.replicas import BEAT_AFTER_S, SILENT_BEATS
from streams.stage import NOTHING, ContinuationWanted, Message
from streams.supervisor import MOST_ATTEMPTS, Supervisor
from tests.unit.streams.staged import (
    BEATS,
    DEADLINE_MS,
    ONE,
    REPLY_LOG,
    ROUTES,
    T0,
    TWO,
    accepted,
    answers,
    beat,
    dispatched,
    events,
    finished,
    origin,
    reply_id,
    started,
    tokens,
)
from tests.unit.streams.supervised import EDGE_BEATS, ME, OTHER, PATIENCE, R1, Supervised, aborted, restarted
from topics.catalog import LONGEST_DEADLINE_MS


@pytest.fixture
def supervisor() -> Supervised:
    return Supervised()


def test_a_late_reply_fails_on_the_supervisors_own_beat_only(supervisor: Supervised) -> None:
    supervisor.running()
    late = T0 + DEADLINE_MS + 1
    assert supervisor.beat(beat(ONE), late) == supervisor.beats(by=OTHER, at_ms=late) == NOTHING
    assert supervisor.beats(at_ms=late - 1) == NOTHING
    assert answers(supervisor.beats(at_ms=late)) == {R1: r.Failed("deadline")}
    supervisor.reply(R1, r.Failed("deadline"), at_ms=late)
    assert supervisor.beats(at_ms=late) == NOTHING


def test_no_deadline_keeps_a_reply_open_for_longer_than_any_may_be(supervisor: Supervised) -> None:
    supervisor.reply(R1, accepted(R1, deadline_ms=2**63 - 1))
    assert supervisor.beats(at_ms=T0 + LONGEST_DEADLINE_MS) == NOTHING
    assert answers(supervisor.beats(at_ms=T0 + LONGEST_DEADLINE_MS + 1)) == {R1: r.Failed("deadline")}


@pytest.mark.parametrize("end", [r.Stopped("user"), r.Failed("deadline")], ids=["stopped", "failed"])
def test_an_end_aborts_all_who_were_given_an_attempt(supervisor: Supervised, end: Any) -> None:
    supervisor.running()
    supervisor.reply(R1, dispatched(1, TWO))
    assert aborted(supervisor.reply(R1, end)) == {(1, ONE), (1, TWO)}


def test_the_one_that_has_finished_is_not_aborted(supervisor: Supervised) -> None:
    supervisor.running()
    supervisor.reply(R1, dispatched(1, TWO))
    assert aborted(supervisor.reply(R1, finished(2))) == {(1, TWO)}


def test_a_fence_aborts_the_attempt_before_it_whoever_wrote_it(supervisor: Supervised) -> None:
    supervisor.running()
    assert aborted(supervisor.reply(R1, r.AttemptOpened(2))) == {(1, ONE)}
    assert aborted(supervisor.reply(R1, r.AttemptOpened(2))) == set()


@pytest.mark.parametrize("record", [started(1, TWO), started(3, TWO), dispatched(2, TWO)])
def test_who_starts_or_gets_what_is_not_his_is_aborted(supervisor: Supervised, record: Any) -> None:
    supervisor.running()
    assert aborted(supervisor.reply(R1, record)) == {(record.attempt, TWO)}


def test_who_starts_what_has_ended_or_was_never_accepted_is_aborted(supervisor: Supervised) -> None:
    supervisor.running()
    supervisor.reply(R1, r.Stopped("user"))
    assert aborted(supervisor.reply(R1, started(1, TWO))) == {(1, TWO)}
    assert aborted(supervisor.reply(reply_id(2), dispatched(1, TWO))) == {(1, TWO)}


def test_a_silent_replicas_reply_is_fenced_after_three_own_beats(supervisor: Supervised) -> None:
    supervisor.running()
    assert supervisor.beats(9, by=OTHER) == supervisor.beats(SILENT_BEATS - 1) == NOTHING
    assert answers(supervisor.beats()) == {R1: r.AttemptOpened(2)}


def test_a_death_between_dispatch_and_start_is_seen(supervisor: Supervised) -> None:
    supervisor.beat(beat(ONE))
    supervisor.reply(R1, accepted(R1), dispatched())
    supervisor.reply(reply_id(2), accepted(reply_id(2)))
    assert answers(supervisor.beats(SILENT_BEATS)) == {R1: r.AttemptOpened(2)}


def test_a_replaced_replicas_reply_is_fenced_on_the_next_beat(supervisor: Supervised) -> None:
    supervisor.running()
    supervisor.beat(beat(TWO))
    assert answers(supervisor.beats()) == {R1: r.AttemptOpened(2)}


def test_a_dropped_attempt_is_fenced_and_no_other(supervisor: Supervised) -> None:
    supervisor.running()
    supervisor.running(reply_id(2))
    drop = beat(ONE, dropped=(AttemptDropped(R1, 1), AttemptDropped(reply_id(2), 7)))
    assert answers(supervisor.beat(drop)) == answers(supervisor.beats()) == {R1: r.AttemptOpened(2)}
    supervisor.reply(R1, r.AttemptOpened(2))
    assert answers(supervisor.beat(drop)) == {}


def test_what_one_of_two_addressees_dropped_is_left_to_the_other(supervisor: Supervised) -> None:
    supervisor.beat(beat(TWO, slot=1))
    supervisor.reply(R1, accepted(R1), dispatched(1, ONE), dispatched(1, TWO, slot=1))
    assert answers(supervisor.beat(beat(ONE, dropped=(AttemptDropped(R1, 1),)))) == {}
    assert answers(supervisor.beat(beat(TWO, slot=1, dropped=(AttemptDropped(R1, 1),)))) == {R1: r.AttemptOpened(2)}


@pytest.mark.parametrize("reason", ["context_length_exceeded: 9 tokens", "internal"])
def test_what_a_replica_refuses_is_its_clients_fault_and_opens_no_attempt(supervisor: Supervised, reason: str) -> None:
    supervisor.running(reply_id(2))
    supervisor.reply(R1, accepted(R1), dispatched(), r.Failed(reason))
    for _ in range(2 * SILENT_BEATS):
        supervisor.beat(beat(ONE))
        assert supervisor.beats() == NOTHING
    assert supervisor.partition.table.is_over(R1, 1)


def test_who_names_an_attempt_that_is_over_is_told_so_until_it_forgets(supervisor: Supervised) -> None:
    supervisor.running()
    drop = beat(ONE, dropped=(AttemptDropped(R1, 1), AttemptDropped(reply_id(2), 1), AttemptDropped(ReplyId("x"), 1)))
    assert aborted(supervisor.beat(drop)) == set()
    supervisor.reply(R1, finished(2))
    assert aborted(supervisor.beat(drop)) == aborted(supervisor.beat(drop)) == {(1, ONE)}


def test_an_attempt_that_the_supervisor_has_not_read_of_yet_is_not_forgotten(supervisor: Supervised) -> None:
    supervisor.running()
    assert aborted(supervisor.beat(beat(ONE, dropped=(AttemptDropped(R1, 2),)))) == set()


def test_one_of_two_addressees_that_lives_is_waited_for(supervisor: Supervised) -> None:
    supervisor.beat(beat(ONE))
    supervisor.beat(beat(TWO, slot=1))
    supervisor.reply(R1, accepted(R1), dispatched(1, ONE), dispatched(1, TWO, slot=1))
    for _ in range(SILENT_BEATS):
        supervisor.beat(beat(TWO, slot=1))
        assert supervisor.beats() == NOTHING
    assert answers(supervisor.beats(SILENT_BEATS)) == {R1: r.AttemptOpened(2)}


@pytest.mark.parametrize("record", [tokens(4, "x"), finished(7)], ids=["tokens", "count"])
def test_a_hole_in_the_tokens_is_fenced_at_once(supervisor: Supervised, record: Any) -> None:
    supervisor.running()
    assert answers(supervisor.reply(R1, record)) == {R1: r.AttemptOpened(2)}


def test_a_continuation_is_wanted_once_with_the_accepted_tokens(supervisor: Supervised) -> None:
    supervisor.running()
    wanted = supervisor.reply(R1, r.AttemptOpened(2), tokens(3, "x")).wanted
    assert wanted == (ContinuationWanted(R1, 2, origin(), wanted[0].accepted),)
    assert bytes(unpack_ids(wanted[0].accepted)) == b"ab"
    assert supervisor.beats(3).wanted == ()
    assert [one.attempt for one in supervisor.reply(R1, r.AttemptOpened(3)).wanted] == [3]


def test_what_was_dispatched_again_needs_no_continuation(supervisor: Supervised) -> None:
    supervisor.running()
    supervisor.reply(R1, r.AttemptOpened(2), dispatched(2, TWO))
    assert supervisor.beats(2).wanted == ()


def test_after_a_restart_what_still_resumes_is_wanted_again(supervisor: Supervised) -> None:
    supervisor.running()
    wanted = supervisor.reply(R1, r.AttemptOpened(2)).wanted
    assert restarted(supervisor).beats().wanted == wanted != ()


def test_a_reply_that_loses_too_many_replicas_fails(supervisor: Supervised) -> None:
    supervisor.running()
    supervisor.reply(R1, *(r.AttemptOpened(n) for n in range(2, MOST_ATTEMPTS + 1)), started(MOST_ATTEMPTS))
    assert answers(supervisor.beats(SILENT_BEATS)) == {R1: r.Failed("replica_lost")}


def test_a_beat_is_sent_half_a_second_after_the_last_was_read_back(supervisor: Supervised) -> None:
    def sent(now: float) -> int:
        return len(events(supervisor.stage.ticks(now), SupervisorBeat))

    assert [sent(10.0), sent(10.0 + BEAT_AFTER_S), sent(99.0)] == [0, 2, 0]
    supervisor.beats(by=OTHER)
    supervisor.beat(SupervisorBeat(ME))
    assert sent(100.0) == 0
    supervisor(EDGE_BEATS, SupervisorBeat(ME))
    assert [sent(100.0), sent(100.0 + BEAT_AFTER_S / 2), sent(100.0 + BEAT_AFTER_S)] == [0, 0, 2]


def test_a_key_that_is_no_reply_of_the_partition_never_becomes_late(supervisor: Supervised) -> None:
    supervisor.reply(ReplyId("nonsense"), accepted(R1))
    supervisor.running()
    assert answers(supervisor.beats(at_ms=T0 + DEADLINE_MS + 1)) == {R1: r.Failed("deadline")}


@pytest.mark.parametrize("replica", ["", "main", "main/-1", "main/9999", "main/x", "nowhere/0", "main/" + "9" * 5_000])
def test_an_addressee_that_no_replica_is_costs_nobody_his_abort(supervisor: Supervised, replica: str) -> None:
    supervisor.running()
    supervisor.reply(R1, r.Dispatched(1, replica, TWO, origin()))
    assert aborted(supervisor.reply(R1, r.Stopped("user"))) == {(1, ONE)}
    assert supervisor.reply(reply_id(2), r.Dispatched(1, replica, TWO, origin())) == NOTHING


def test_before_it_has_caught_up_it_acts_on_no_reply() -> None:
    stage = Supervisor(ME, ROUTES, PATIENCE)
    stage.assigned(REPLY_LOG, None)
    log = [accepted(R1), dispatched(), r.AttemptOpened(2), started(2, TWO), finished(0, 2, TWO)]
    messages = [Message(REPLY_LOG, n, T0, f"{R1}/w/{n}".encode(), record) for n, record in enumerate(log)]
    mine = Message(BEATS, 0, T0 + DEADLINE_MS + 1, b"", SupervisorBeat(ME))
    for message in messages:
        stage.apply(message)
        assert stage.apply(mine) == NOTHING
    stage.caught_up(REPLY_LOG)
    stage.apply(replace(messages[0], key=f"{reply_id(2)}/w/9".encode(), event=accepted(reply_id(2))))
    assert answers(stage.apply(mine)) == {reply_id(2): r.Failed("deadline")}


def test_a_slot_that_a_stranger_took_is_fenced_and_served_again_by_its_next_incarnation(supervisor: Supervised) -> None:
    supervisor.running()
    supervisor.beat(beat(Incarnation("stranger")))
    supervisor.beat(beat(ONE))
    assert answers(supervisor.beats()) == {R1: r.AttemptOpened(2)}
    supervisor.beat(beat(TWO))
    supervisor.reply(R1, r.AttemptOpened(2), dispatched(2, TWO), started(2, TWO))
    assert supervisor.beats(SILENT_BEATS - 1).first == ()


@pytest.mark.parametrize("slot", [9999, -5, 2**63 - 1])
def test_beats_of_slots_that_the_cell_does_not_have_stop_nothing(supervisor: Supervised, slot: int) -> None:
    supervisor.running()
    supervisor.beat(beat(TWO, slot=slot))
    assert supervisor.beats(SILENT_BEATS - 1) == NOTHING
    assert answers(supervisor.beats()) == {R1: r.AttemptOpened(2)}
