"""How a replica leaves: what it still finishes, what it hands over, and that all of it is told."""

from collections.abc import Callable, Mapping
from itertools import count
from signal import SIGINT, SIGTERM, SIGUSR1, Signals

import pytest

from engine.leaving import Leaving
from engine.main import STRAGGLERS_S, serve
from schemas import reply_records as r
from schemas.events import AttemptDropped, DrainRequested
from schemas.tokenizer import ChatTokenizer
from tests.unit.engine.replica_rig import ONE, Rig, folded, reply_id
from topics.catalog import REPLICAS, REPLIES

STEP_S = 0.125
LONG = "a reply of many tokens"
NEVER = 3600.0


@pytest.fixture
def rig(tiny_tokenizer: ChatTokenizer) -> Rig:
    return Rig(tiny_tokenizer)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def leave(rig: Rig, signals: Mapping[int, Signals | Callable[[], object]], drain_s: float = NEVER) -> float:
    """Serves until it has left; after so many steps a signal comes, or something else happens. How long it took from
    the first signal on."""
    clock, steps, told_at = Clock(), count(1), [0.0]
    leaving = Leaving(drain_s, clock)

    def stepped(_: object) -> None:
        clock.now += STEP_S
        match signals.get(next(steps)):
            case Signals() as number:
                told_at[0] = told_at[0] or clock.now
                leaving.told(number)
            case Callable() as happens:
                happens()

    serve(rig.replica, leaving, [], stepped, clock)
    return clock.now - told_at[0]


def dropped(rig: Rig) -> set[AttemptDropped]:
    return set(rig.replica.load.dropped)


def test_one_signal_gives_time_and_a_second_one_ends_it() -> None:
    clock = Clock()
    leaving = Leaving(10.0, clock)
    assert not (leaving.asked or leaving.over)
    leaving.told(SIGTERM)
    clock.now = 9.0
    assert (leaving.asked, leaving.over) == (True, False)
    leaving.told(SIGINT)
    assert leaving.over


def test_what_is_done_in_time_ends_and_what_is_not_is_handed_over(rig: Rig) -> None:
    rig.assign(1, "hey")
    rig.assign(2, LONG)
    assert leave(rig, {2: SIGTERM}, drain_s=5 * STEP_S) == 5 * STEP_S
    assert folded(1, *rig.of(1)).end == r.Finished(1, ONE, "stop", 3)
    assert (len(folded(2, *rig.of(2)).ids), dropped(rig)) == (7, {AttemptDropped(reply_id(2), 1)})
    assert (rig.replica.load.draining, rig.replica.load.running) == (True, 0)


@pytest.mark.parametrize("signals", [{2: SIGUSR1}, {2: SIGTERM, 3: SIGTERM}], ids=["notice", "second signal"])
def test_a_notice_and_a_second_signal_hand_over_at_once(rig: Rig, signals: Mapping[int, Signals]) -> None:
    for n in (1, 2):
        rig.assign(n, LONG)
    assert leave(rig, signals) <= STRAGGLERS_S + 2 * STEP_S
    assert dropped(rig) == {AttemptDropped(reply_id(1), 1), AttemptDropped(reply_id(2), 1)}
    assert len(folded(1, *rig.of(1)).ids) == max(signals)


def test_what_the_router_sends_before_it_has_heard_is_handed_over_too(rig: Rig) -> None:
    rig.assign(1, "hey")
    leave(rig, {2: SIGTERM, 3: lambda: rig.assign(2), 4: lambda: rig.assign(3)})
    assert (rig.kinds(1)[-1], rig.kinds(2), rig.kinds(3)) == (r.Finished, [], [])
    assert dropped(rig) == {AttemptDropped(reply_id(2), 1), AttemptDropped(reply_id(3), 1)}


def test_a_drain_that_was_asked_for_has_no_end_but_a_signal(rig: Rig) -> None:
    rig.assign(1, LONG)
    leave(rig, {1: lambda: rig.tell(DrainRequested(ONE)), 2: lambda: rig.assign(2)}, drain_s=0.0)
    assert (rig.kinds(1)[-1], dropped(rig)) == (r.Finished, {AttemptDropped(reply_id(2), 1)})


def test_an_end_that_turns_out_to_be_lost_is_named_before_it_goes(rig: Rig) -> None:
    rig.assign(1, "hey")
    rig.run()
    [job] = rig.replica._jobs.values()
    rig.run_out()
    rig.log.fail_deliveries(REPLIES, 1)
    rig.replica._write(reply_id(1), r.Preempted(1, ONE), job)
    assert dropped(rig) == set()
    rig.replica.hand_over()
    assert dropped(rig) == {AttemptDropped(reply_id(1), 1)}


@pytest.mark.parametrize("lost", [0, 1])
def test_the_last_heartbeat_is_told_to_be_in_the_log_or_not(rig: Rig, lost: int) -> None:
    beats = rig.beats()
    rig.replica.drain()
    rig.log.fail_deliveries(REPLICAS, lost)
    beats._stopping.set()
    beats.start()
    assert beats.stop() is not bool(lost)
    assert [beat.state for _, beat in rig.events(REPLICAS)] == ["draining"] * (1 - lost)
