"""Attempts that a replica no longer computes, as its heartbeats name them for the supervisor to fence.

An abort follows an end or a fence, and then the name says nothing new; but anyone may write one, and without a name its
reply would stay open until its deadline. Time is the supervisor's: so many of its beats, read back from the log.
"""

from __future__ import annotations

from math import inf

from schemas.events import AttemptDropped
from schemas.ids import ReplyId

NAMED_BEATS = 10
NAMED_MOST = 1_000
# No reply is open for longer than 30 minutes, which is 3,600 beats of one supervisor; there may be a few.
GIVEN_UP_BEATS = 4 * 3_600


class Dropped:
    """What was given up is named until an abort comes for it, what was aborted for the supervisor's next ten beats.

    No abort comes for what is learnt after it, such as another record that was not delivered: that is named for as long
    as its reply could be open.
    """

    def __init__(self) -> None:
        self._given_up: dict[tuple[ReplyId, int], int] = {}
        self._aborted: dict[tuple[ReplyId, int], int] = {}

    def give_up(self, reply: ReplyId, attempt: int, beats: int) -> None:
        if (reply, attempt) not in self._aborted:
            self._given_up.setdefault((reply, attempt), beats + GIVEN_UP_BEATS)

    def abort(self, reply: ReplyId, attempt: int, beats: int, *, was_here: bool) -> None:
        """An abort came when `beats` of the supervisor were read; it names what was here or was given up before."""
        if (reply, attempt) in self._given_up or was_here:
            self._given_up.pop((reply, attempt), None)
            self._aborted.setdefault((reply, attempt), beats + NAMED_BEATS)

    def named(self, beats: int) -> tuple[AttemptDropped, ...]:
        """Those to be named now; forgets for good whom it leaves out."""
        for names, most in ((self._given_up, inf), (self._aborted, NAMED_MOST)):
            while names and (len(names) > most or names[next(iter(names))] <= beats):
                del names[next(iter(names))]
        return tuple(AttemptDropped(*attempt) for attempt in (*self._given_up, *self._aborted))
