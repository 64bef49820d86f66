"""Edges as the log of their heartbeats shows them to the supervisor: whose listeners still listen.

Silence is measured in the log, as for replicas: an edge is gone when so many of the supervisor's beats in `edges`
follow its last. It is patient, since an edge that is taken for dead too soon costs replies that somebody reads; one
that speaks again is back with all its listeners.
"""

from __future__ import annotations

from schemas.events import EdgeBeat, SupervisorBeat
from schemas.ids import Incarnation
from streams.replicas import BEAT_AFTER_S
from topics.catalog import LONGEST_DEADLINE_MS, SECOND

SILENT_BEATS = 10
FORGOTTEN_BEATS = 2 * LONGEST_DEADLINE_MS / SECOND / BEAT_AFTER_S


class Edges:
    """Folds the topic `edges` for the supervisor of this incarnation."""

    def __init__(self, supervisor: Incarnation) -> None:
        self._supervisor = supervisor
        self._silent: dict[Incarnation, int] = {}

    def apply(self, beat: EdgeBeat | SupervisorBeat) -> None:
        if isinstance(beat, EdgeBeat):
            self._silent[beat.incarnation] = 0
        elif beat.incarnation == self._supervisor:
            counted = {edge: beats + 1 for edge, beats in self._silent.items()}
            self._silent = {edge: beats for edge, beats in counted.items() if beats < FORGOTTEN_BEATS}

    def alive(self, edge: Incarnation) -> bool:
        """One of which no beat is known is counted from when it was first asked for."""
        return self._silent.setdefault(edge, 0) < SILENT_BEATS
