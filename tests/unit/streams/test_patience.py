"""What the supervisor waits for no longer: a listener, an edge, a replica of the pool, a step that does not end."""

from dataclasses import replace

import pytest

from schemas import reply_records as r
from schemas.events import ReplicaBeat
from schemas.ids import ReplyId
from streams.edges import SILENT_BEATS
from streams.replicas import BEAT_AFTER_S, FIRST_STEP_S, STUCK_LEAST_S, STUCK_STEPS
from streams.stage import NOTHING, Decision
from streams.supervisor import CANCEL_AFTER_S
from tests.unit.streams.staged import ONE, REPLY_LOG, T0, TWO, accepted, answers, beat, dispatched, reply_id, started
from tests.unit.streams.supervised import ABANDONED_BEATS, R1, STRANDED_BEATS, Supervised

CANCEL_BEATS = round(CANCEL_AFTER_S / BEAT_AFTER_S)
LATER = T0 + 10_000


class Watching(Supervised):
    def asked(self, on_disconnect: str = "grace", reply: ReplyId = R1) -> None:
        """A reply that runs at a living replica, nobody listening yet; the edges e and f live."""
        self.edge("e", "f")
        self.beat(beat(ONE))
        self.reply(reply, accepted(reply, on_disconnect=on_disconnect), dispatched(), started())

    def pass_by(self, beats: int, *edges: str) -> Decision:
        """So many own beats, while the replica and these edges live."""
        found = NOTHING
        for _ in range(beats):
            self.beat(beat(ONE))
            self.edge(*edges)
            found = self.beats()
        return found

    def attach(self, edge: str = "e", stream: str = "s") -> None:
        self.reply(R1, r.ListenerAttached(edge, stream))

    def detach(self, edge: str = "e", stream: str = "s") -> None:
        self.reply(R1, r.ListenerDetached(edge, stream))


@pytest.fixture
def supervisor() -> Watching:
    return Watching()


def abandoned(decision: Decision) -> bool:
    return isinstance(record := answers(decision).get(R1), r.Stopped) and record.by == "abandoned"


def test_a_reply_that_nobody_listens_to_is_abandoned_after_its_grace(supervisor: Watching) -> None:
    supervisor.asked()
    assert not abandoned(supervisor.pass_by(ABANDONED_BEATS - 1))
    assert abandoned(supervisor.pass_by(1))


def test_one_that_is_listened_to_goes_on_and_the_grace_begins_when_the_last_has_gone(supervisor: Watching) -> None:
    supervisor.asked()
    supervisor.attach(stream="one")
    supervisor.attach("f", "two")
    assert not abandoned(supervisor.pass_by(2 * ABANDONED_BEATS, "e", "f"))
    supervisor.detach(stream="one")
    assert not abandoned(supervisor.pass_by(2 * ABANDONED_BEATS, "e", "f"))
    supervisor.detach("f", "two")
    assert not abandoned(supervisor.pass_by(ABANDONED_BEATS - 1, "e", "f"))
    assert abandoned(supervisor.pass_by(1, "e", "f"))


def test_a_listener_who_comes_back_in_the_last_moment_begins_the_grace_anew(supervisor: Watching) -> None:
    supervisor.asked()
    supervisor.pass_by(ABANDONED_BEATS - 1, "e")
    supervisor.attach()
    supervisor.detach()
    assert not abandoned(supervisor.pass_by(ABANDONED_BEATS - 1, "e"))
    assert abandoned(supervisor.pass_by(1, "e"))


def test_a_partition_that_another_had_meanwhile_is_counted_anew(supervisor: Watching) -> None:
    supervisor.asked()
    supervisor.pass_by(ABANDONED_BEATS - 1)
    supervisor.snapshot()
    supervisor.take_over(supervisor.position, list(supervisor.changelog.values()))
    supervisor.reply(R1, *(message.event for message in supervisor.log[REPLY_LOG][supervisor.position.offset :]))
    assert not abandoned(supervisor.pass_by(ABANDONED_BEATS - 1))
    assert abandoned(supervisor.pass_by(1))


def test_what_it_writes_is_void_for_a_listener_whom_it_had_not_seen(supervisor: Watching) -> None:
    supervisor.asked()
    record = answers(supervisor.pass_by(ABANDONED_BEATS))[R1]
    supervisor.attach()
    supervisor.reply(R1, record)
    assert answers(supervisor.pass_by(1, "e")) == {}
    supervisor.reply(R1, replace(record, seen=record.seen + 1))
    supervisor.detach()
    assert answers(supervisor.pass_by(ABANDONED_BEATS)) == {}


def test_one_that_is_to_continue_is_never_abandoned(supervisor: Watching) -> None:
    supervisor.asked("continue")
    supervisor.attach()
    supervisor.detach()
    assert not abandoned(supervisor.pass_by(3 * ABANDONED_BEATS))


def test_one_that_is_to_be_cancelled_ends_soon_after_its_listener_has_gone(supervisor: Watching) -> None:
    supervisor.asked("cancel")
    assert not abandoned(supervisor.pass_by(CANCEL_BEATS, "e"))
    supervisor.attach()
    assert not abandoned(supervisor.pass_by(CANCEL_BEATS, "e"))
    supervisor.detach()
    assert not abandoned(supervisor.pass_by(CANCEL_BEATS - 1, "e"))
    assert abandoned(supervisor.pass_by(1, "e"))


def test_the_listeners_of_a_dead_edge_have_gone(supervisor: Watching) -> None:
    supervisor.asked()
    supervisor.attach()
    assert not abandoned(supervisor.pass_by(SILENT_BEATS + ABANDONED_BEATS - 2, "f"))
    assert abandoned(supervisor.pass_by(1, "f"))


def test_those_of_an_edge_that_was_only_frozen_are_back_with_it(supervisor: Watching) -> None:
    supervisor.asked()
    supervisor.attach()
    supervisor.pass_by(SILENT_BEATS + ABANDONED_BEATS - 2)
    assert not abandoned(supervisor.pass_by(3 * ABANDONED_BEATS, "e"))


def test_a_reply_without_a_replica_fails_when_the_pool_has_had_none_for_long(supervisor: Watching) -> None:
    supervisor.edge("e")
    supervisor.reply(R1, accepted(R1))
    assert answers(supervisor.beats(STRANDED_BEATS - 1, at_ms=LATER)) == {}
    assert answers(supervisor.beats(at_ms=LATER)) == {R1: r.Failed("no_replica")}


def test_a_new_reply_waits_as_long_as_the_others_did(supervisor: Watching) -> None:
    supervisor.beats(STRANDED_BEATS)
    supervisor.reply(R1, accepted(R1))
    assert answers(supervisor.beats()) == {}
    assert answers(supervisor.beats(at_ms=LATER)) == {R1: r.Failed("no_replica")}


def test_one_that_comes_back_in_time_serves_what_has_waited(supervisor: Watching) -> None:
    supervisor.reply(R1, accepted(R1))
    supervisor.beats(STRANDED_BEATS - 1)
    supervisor.beat(beat(TWO))
    assert answers(supervisor.beats(at_ms=LATER)) == {}


def test_a_replica_that_leaves_takes_nothing_new_but_what_it_has_goes_on(supervisor: Watching) -> None:
    supervisor.asked("continue")
    supervisor.reply(reply_id(2), accepted(reply_id(2)))
    for _ in range(STRANDED_BEATS):
        supervisor.beat(beat(ONE, state="draining"))
        told = answers(supervisor.beats(at_ms=LATER))
    assert told == {reply_id(2): r.Failed("no_replica")}


def stuck_after(supervisor: Watching, at_work: ReplicaBeat, most: int = 500) -> int:
    """How many of the supervisor's beats it takes until the replica's reply is fenced, though it beats."""
    supervisor.reply(R1, accepted(R1), dispatched(), started())
    for beats in range(1, most):
        supervisor.beat(at_work)
        if answers(supervisor.beats()):
            return beats
    return most


@pytest.mark.parametrize(
    ("p99_ms", "patience_s"),
    [(1.0, STUCK_LEAST_S), (2_000.0, STUCK_STEPS * 2.0), (0.0, FIRST_STEP_S), (float("nan"), STUCK_LEAST_S)],
)
def test_a_step_that_does_not_end_is_waited_for_ten_times_its_like(
    supervisor: Watching, p99_ms: float, patience_s: float
) -> None:
    at_work = replace(beat(ONE, running=1, step=7), p99_step_ms=p99_ms)
    assert stuck_after(supervisor, at_work) == round(patience_s / BEAT_AFTER_S)


def test_one_that_steps_or_has_nothing_to_do_is_not_stuck(supervisor: Watching) -> None:
    supervisor.reply(R1, accepted(R1), dispatched(), started())
    for step in range(100):
        supervisor.beat(beat(ONE, running=1, step=step))
        assert answers(supervisor.beats()) == {}
    for _ in range(100):
        supervisor.beat(beat(ONE, step=99))
        assert answers(supervisor.beats()) == {}
