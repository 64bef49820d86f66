"""Attempts that a replica no longer computes, as its heartbeats name them for the supervisor to fence.

An abort follows an end or a fence, and then the name says nothing new; but anyone may write one, and without a name its
reply would stay open until its deadline. Time is the supervisor's: so many of its beats, read back from the log.
"""

from __future__ import annotations

from schemas.events import AttemptDropped
from schemas.ids import ReplyId

NAMED_BEATS = 10
NAMED_MOST = 1_000


class Dropped:
    """What was given up is named until an abort comes for it, what was aborted for the supervisor's next ten beats."""

    def __init__(self) -> None:
        self._given_up: dict[tuple[ReplyId, int], None] = {}
        self._aborted: dict[tuple[ReplyId, int], int] = {}

    def give_up(self, reply: ReplyId, attempt: int) -> None:
        self._given_up[reply, attempt] = None

    def abort(self, reply: ReplyId, attempt: int, beats: int, *, was_here: bool) -> None:
        """An abort came when `beats` of the supervisor were read; it names what was here or was given up before."""
        if (reply, attempt) in self._given_up or was_here:
            self._given_up.pop((reply, attempt), None)
            self._aborted.setdefault((reply, attempt), beats + NAMED_BEATS)

    def named(self, beats: int) -> tuple[AttemptDropped, ...]:
        """Those to be named now; forgets for good whom it leaves out."""
        while self._aborted:
            oldest = next(iter(self._aborted))
            if len(self._aborted) <= NAMED_MOST and self._aborted[oldest] > beats:
                break
            del self._aborted[oldest]
        return tuple(AttemptDropped(*attempt) for attempt in (*self._given_up, *self._aborted))
