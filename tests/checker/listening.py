"""Who listened to a reply, and when, as the log tells it: a listener counts from its attachment to its detachment, and
no longer than the supervisor could take its edge for alive.

Time is told twice: in milliseconds, and in the beats of the one supervisor that wrote an end, since it acts on nothing
else. Only a time in which that supervisor cannot have failed to see somebody listen is a time in which one listened.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schemas import reply_records as r
from schemas.events import EdgeBeat, SupervisorBeat
from tests.checker.history import Entry

DEAD_BEATS = 10
SURELY_SEEN_BEATS = 4


@dataclass(frozen=True, slots=True)
class Listener:
    edge: str
    attached: Entry
    detached: Entry | None


@dataclass(frozen=True)
class Beats:
    """The topic `edges`: of each edge its beats, of one supervisor its own."""

    of_edges: dict[str, list[Entry]]
    own: list[Entry]

    def own_between(self, first: int, last: int) -> list[Entry]:
        """The supervisor's beats at offsets between these."""
        offsets = [entry.offset for entry in self.own]
        return self.own[bisect_left(offsets, first) : bisect_left(offsets, last)]


def beats_of(edges: Sequence[Entry], supervisor: str) -> Beats:
    of_edges: dict[str, list[Entry]] = {}
    own: list[Entry] = []
    for entry in edges:
        if isinstance(entry.event, EdgeBeat):
            of_edges.setdefault(entry.event.incarnation, []).append(entry)
        elif isinstance(entry.event, SupervisorBeat) and entry.event.incarnation == supervisor:
            own.append(entry)
    return Beats(of_edges, own)


def listeners_of(records: Sequence[Entry]) -> list[Listener]:
    """Of one reply, in the order in which they came."""
    gone = {(e.event.edge, e.event.stream): e for e in records if isinstance(e.event, r.ListenerDetached)}
    came = [entry for entry in records if isinstance(entry.event, r.ListenerAttached)]
    return [Listener(e.event.edge, e, gone.get((e.event.edge, e.event.stream))) for e in came]


def surely_heard(listener: Listener, beats: Beats, end_ms: int) -> Iterator[tuple[int, int]]:
    """The times in milliseconds when this listener listened and the supervisor must have seen it."""
    until_ms = min(end_ms, listener.detached.at_ms if listener.detached else end_ms)
    for began_ms, over_ms in _alive(beats, listener.edge, end_ms):
        began_ms, over_ms = max(began_ms, listener.attached.at_ms), min(over_ms, until_ms)
        if sum(began_ms <= own.at_ms <= over_ms for own in beats.own) >= SURELY_SEEN_BEATS:
            yield began_ms, over_ms


def _alive(beats: Beats, edge: str, end_ms: int) -> Iterator[tuple[int, int]]:
    """From a beat of the edge to the first after which the supervisor may take it for dead."""
    began_ms: int | None = None
    of_edge = beats.of_edges.get(edge, [])
    for this, following in zip(of_edge, [*of_edge[1:], None], strict=False):
        began_ms = this.at_ms if began_ms is None else began_ms
        silent = beats.own_between(this.offset, following.offset if following else 1 << 62)
        if len(silent) >= DEAD_BEATS:
            yield began_ms, silent[DEAD_BEATS - 1].at_ms
            began_ms = None
    if began_ms is not None:
        yield began_ms, end_ms
