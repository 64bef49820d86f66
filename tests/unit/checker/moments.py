"""One reply's life told in seconds, with the beats around it: of an edge, of a replica and of the supervisor."""

from __future__ import annotations

from typing import Any

from schemas.events import EdgeBeat, SupervisorBeat
from schemas.ids import Incarnation
from tests.checker.history import Entry, History, Waits
from tests.unit.streams.staged import T0, reply_id
from topics.catalog import EDGES, REPLICAS, REPLIES
from topics.log import Place

REPLY = reply_id(1)
SUPERVISOR = Incarnation("supervisor")
WAITS = Waits(grace_ms=10_000, cancel_ms=3_000)
BEAT_S = 0.5


def told(*moments: tuple[float, Any]) -> tuple[Entry, ...]:
    """Records of the reply, each with its second, as the supervisor would have written them."""
    return tuple(
        Entry(Place(REPLIES, 0), n, T0 + round(at_s * 1_000), f"{REPLY}/{SUPERVISOR}/{n}".encode(), event)
        for n, (at_s, event) in enumerate(moments)
    )


def beating(topic: str, *beats: tuple[Any, float]) -> tuple[Entry, ...]:
    """Each beat every half second, up to its second."""
    counts = [int(to_s / BEAT_S) for _, to_s in beats]
    times = [(n, beat) for n in range(max(counts)) for (beat, _), count in zip(beats, counts, strict=True) if n < count]
    return tuple(
        Entry(Place(topic, 0), offset, T0 + round(n * BEAT_S * 1_000), b"", beat)
        for offset, (n, beat) in enumerate(times)
    )


def with_edges(replies: tuple[Entry, ...], **until_s: float) -> History:
    """Edges that beat until so many seconds, and a supervisor that beats for a minute."""
    edges = [(EdgeBeat(Incarnation(edge), 0), to_s) for edge, to_s in until_s.items()]
    return History((*replies, *beating(EDGES, *edges, (SupervisorBeat(SUPERVISOR), 60.0))), waits=WAITS)


def with_replicas(replies: tuple[Entry, ...], *beats: tuple[Any, float]) -> History:
    return History((*replies, *beating(REPLICAS, *beats)))
