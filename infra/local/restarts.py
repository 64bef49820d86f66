"""When a child process is started again: a pure fold over what was seen of it.

In: a Watch, the time and what the last look found (exited, ready). Out: the next Watch. A move from
CRASHED to STARTING is the caller's order to spawn. A crash is answered later each time, up to
LONGEST seconds, until the child has been ready for STEADY seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

FIRST = 0.5
LONGEST = 30.0
STEADY = 60.0


class State(StrEnum):
    STARTING = "starting"
    READY = "ready"
    CRASHED = "crashed"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Watch:
    """One child as seen so far; `since` (seconds, monotonic) is when its state began."""

    state: State
    since: float
    restarts: int = 0
    streak: int = 0


def delay(streak: int) -> float:
    """Seconds to wait before the restart that follows the `streak`-th crash in a row."""
    return min(FIRST * 2.0 ** min(streak - 1, 16), LONGEST)


def observe(watch: Watch, now: float, *, exited: bool, ready: bool) -> Watch:
    """The watch after one look at the child; the same object when nothing changed."""
    match watch.state:
        case State.STARTING | State.READY if exited:
            steady = watch.state is State.READY and now - watch.since >= STEADY
            return replace(watch, state=State.CRASHED, since=now, streak=1 if steady else watch.streak + 1)
        case State.STARTING if ready:
            return replace(watch, state=State.READY, since=now)
        case State.CRASHED if now - watch.since >= delay(watch.streak):
            return replace(watch, state=State.STARTING, since=now, restarts=watch.restarts + 1)
    return watch
