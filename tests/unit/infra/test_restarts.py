from __future__ import annotations

from infra.local.restarts import LONGEST, STEADY, State, Watch, delay, observe

NEW = Watch(State.STARTING, since=0.0)


def test_a_child_is_ready_when_its_check_says_so() -> None:
    assert observe(NEW, 1.0, exited=False, ready=False) is NEW
    assert observe(NEW, 2.0, exited=False, ready=True) == Watch(State.READY, since=2.0)


def test_a_crash_is_answered_after_the_delay_and_not_before() -> None:
    crashed = observe(NEW, 5.0, exited=True, ready=False)
    assert crashed == Watch(State.CRASHED, since=5.0, streak=1)
    assert observe(crashed, 5.0 + delay(1) - 0.01, exited=True, ready=False) is crashed
    assert observe(crashed, 5.0 + delay(1), exited=True, ready=False).state is State.STARTING


def test_crashes_in_a_row_wait_longer_each_time_up_to_a_limit() -> None:
    delays = [delay(streak) for streak in range(1, 40)]
    assert delays == sorted(delays)
    assert (delays[0], delays[1], delays[-1]) == (0.5, 1.0, LONGEST)


def test_a_long_ready_time_forgives_earlier_crashes() -> None:
    worn = Watch(State.READY, since=0.0, restarts=7, streak=7)
    assert observe(worn, STEADY - 1, exited=True, ready=False).streak == 8
    assert observe(worn, STEADY, exited=True, ready=False).streak == 1


def test_a_stopped_child_stays_stopped() -> None:
    stopped = Watch(State.STOPPED, since=0.0)
    assert observe(stopped, 1000.0, exited=True, ready=True) is stopped


def test_each_restart_is_counted() -> None:
    watch, now = NEW, 0.0
    for _ in range(3):
        watch = observe(watch, now := now + 60, exited=True, ready=False)
        watch = observe(watch, now := now + 60, exited=True, ready=False)
    assert (watch.state, watch.restarts, watch.streak) == (State.STARTING, 3, 3)
