"""The checker finds replies that were given up too soon or too late, and attempts that were fenced for no reason."""

from dataclasses import replace

import pytest

from schemas import reply_records as r
from schemas.events import AttemptDropped, ReplicaBeat, SupervisorBeat
from tests.checker.abandoned import abandonment_violations
from tests.checker.fences import fence_violations
from tests.checker.history import History
from tests.checker.telling import tell
from tests.unit.checker.moments import REPLY, SUPERVISOR, told, with_edges, with_replicas
from tests.unit.streams.staged import ONE, T0, TWO, accepted, beat, dispatched, started, tokens
from topics.catalog import REPLICAS, REPLIES

CAME, WENT = r.ListenerAttached("e", "s"), r.ListenerDetached("e", "s")
AT_WORK = beat(ONE, running=1, step=7)


def abandoned(history: History) -> list[str]:
    return [str(violation.found) for violation in abandonment_violations(history, tell(history.of(REPLIES)))]


def given_up(at_s: float, *listening: tuple[float, object], edge_s: float = 60.0, wanted: str = "grace") -> list[str]:
    """A reply that is posted at once and abandoned at this second."""
    life = ((0.0, accepted(REPLY, on_disconnect=wanted)), *listening)
    return abandoned(with_edges(told(*life, (at_s, r.Stopped("abandoned", len(life) - 1))), e=edge_s))


def test_a_grace_is_counted_from_when_the_last_has_gone() -> None:
    assert given_up(10.0) == []
    assert given_up(15.0, (1.0, CAME), (5.0, WENT)) == []
    assert given_up(14.0, (1.0, CAME), (5.0, WENT)) == ["after 9000 ms alone"]


def test_whoever_comes_back_begins_it_anew() -> None:
    back = (14.0, r.ListenerAttached("e", "again")), (14.1, r.ListenerDetached("e", "again"))
    assert given_up(15.0, (1.0, CAME), (5.0, WENT), *back) == ["after 1000 ms alone"]
    assert given_up(24.0, (1.0, CAME), (5.0, WENT), *back) == []


def test_who_listens_at_a_living_edge_is_not_alone() -> None:
    assert given_up(40.0, (1.0, CAME)) != []
    assert given_up(24.0, (1.0, CAME), edge_s=9.0) == []
    assert given_up(22.0, (1.0, CAME), edge_s=9.0) != []


def test_what_is_to_go_on_for_nobody_is_never_abandoned_and_what_is_to_be_cancelled_soon() -> None:
    assert given_up(50.0, wanted="continue") == ["an end"]
    assert given_up(8.0, (1.0, CAME), (5.0, WENT), wanted="cancel") == []
    assert given_up(7.0, (1.0, CAME), (5.0, WENT), wanted="cancel") == ["after 2000 ms alone"]
    assert given_up(3.0, wanted="cancel") == ["after 3000 ms alone"]


@pytest.mark.parametrize(("wanted", "late_s"), [("grace", 18.0), ("cancel", 11.0), ("continue", 1_000.0)])
def test_one_that_goes_on_for_nobody_for_long_is_found(wanted: str, late_s: float) -> None:
    life = (0.0, accepted(REPLY, on_disconnect=wanted)), (1.0, CAME), (5.0, WENT)
    for end_s in (10.0, 16.0, 20.0, 45.0):
        found = abandoned(with_edges(told(*life, (end_s, r.Failed("deadline"))), e=60.0))
        assert bool(found) == (end_s > late_s)


def test_the_listeners_of_a_dead_edge_are_gone_some_time_after_it() -> None:
    life = (0.0, accepted(REPLY, on_disconnect="grace")), (1.0, CAME)
    assert abandoned(with_edges(told(*life, (25.0, r.Failed("deadline"))), e=5.0)) == []
    assert abandoned(with_edges(told(*life, (40.0, r.Failed("deadline"))), e=5.0)) != []
    assert abandoned(with_edges(told(*life, (40.0, r.Failed("deadline"))), e=40.0)) == []


def fenced(*beats: tuple[ReplicaBeat, float], at_s: float = 10.0, hole: bool = False) -> bool:
    """Whether something is wrong with a fence at this second."""
    life = (0.0, accepted(REPLY)), (0.1, dispatched()), (0.2, started()), (0.3, tokens(5 if hole else 1, "ab"))
    history = with_replicas(told(*life, (at_s, r.AttemptOpened(2))), *beats)
    return bool(list(fence_violations(history, tell(history.of(REPLIES)))))


def test_a_replica_that_beats_must_not_be_fenced() -> None:
    assert fenced((beat(ONE), 20.0))
    assert fenced((beat(ONE), 10.0))
    assert not fenced((beat(ONE), 9.0))


@pytest.mark.parametrize(("last_s", "wrong"), [(7.0, False), (9.5, True)])
def test_one_that_was_silent_when_the_supervisor_last_looked_may_be(last_s: float, wrong: bool) -> None:
    life = (0.0, accepted(REPLY)), (9.4, dispatched()), (9.95, r.AttemptOpened(2))
    history = with_replicas(told(*life), (beat(ONE), last_s), (SupervisorBeat(SUPERVISOR), 10.0))
    back = replace(history.of(REPLICAS)[-1], offset=1_000, at_ms=T0 + 9_800, event=beat(ONE))
    history = History((*history.entries, back))
    assert bool(list(fence_violations(history, tell(history.of(REPLIES))))) == wrong


@pytest.mark.parametrize(("last_s", "wrong"), [(7.0, False), (20.0, True)])
def test_one_that_was_given_it_since_the_supervisor_last_looked_may_be_unknown_to_it(
    last_s: float, wrong: bool
) -> None:
    again = replace(dispatched(), incarnation=TWO)
    life = (0.0, accepted(REPLY)), (9.4, dispatched()), (9.9, again), (9.95, r.AttemptOpened(2))
    beats = (beat(ONE), last_s), (replace(beat(TWO), slot=1), 20.0), (SupervisorBeat(SUPERVISOR), 10.0)
    history = with_replicas(told(*life), *beats)
    assert bool(list(fence_violations(history, tell(history.of(REPLIES))))) == wrong


def test_one_that_was_replaced_or_gave_the_attempt_up_or_left_a_hole_may_be() -> None:
    assert not fenced((beat(ONE), 20.0), (beat(TWO), 20.0))
    assert not fenced((replace(beat(ONE), dropped=(AttemptDropped(REPLY, 1),)), 20.0))
    assert fenced((replace(beat(ONE), dropped=(AttemptDropped(REPLY, 2),)), 20.0))
    assert not fenced((beat(ONE), 20.0), hole=True)


def test_one_that_stands_still_with_something_to_do_may_be() -> None:
    assert not fenced((AT_WORK, 20.0))
    assert fenced((AT_WORK, 20.0), at_s=3.0)
    assert fenced((replace(AT_WORK, running=0), 20.0))
