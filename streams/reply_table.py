"""The replies of one partition of `replies`, folded in log order, for the stages that watch all of them.

Invariant: every reply that is open, or ended less than REMEMBERED_MS ago in log time, began at or after `low_water`.
So a restart that folds from there misses nothing, and an Accepted that a replaying intake wrote a second time finds
the end of the first one still remembered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas import reply_records as r
from schemas.ids import ReplyId, has_reply_id_form, reply_partition
from schemas.reply import Reply, Verdict
from streams.stage import Message
from topics.catalog import MINUTE

REMEMBERED_MS = 10 * MINUTE
OPENING = (r.Accepted, r.Rejected, r.Redirected)


@dataclass(slots=True)
class Watched:
    """A reply, the offsets of its first and of its newest record, and the log time of its acceptance and its end."""

    reply: Reply
    first_offset: int
    accepted_ms: int
    ended_ms: int | None = None
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Change:
    """What a record did: `ended` by it or not. `watched` is None for a reply whose beginning is not in the table."""

    watched: Watched | None
    verdict: Verdict
    ended: bool


class ReplyTable:
    def __init__(self) -> None:
        self._watched: dict[ReplyId, Watched] = {}

    def apply(self, message: Message) -> Change:
        """Folds one record of the partition in; one that is in already changes nothing."""
        self._forget(message.at_ms)
        reply = message.reply
        watched = self._watched.get(reply) if reply else None
        if watched is None:
            if reply is None or not isinstance(message.event, OPENING) or not _lives_here(reply, message):
                return Change(None, Verdict.VOID, False)
            watched = self._watched[reply] = Watched(Reply(reply), message.offset, message.at_ms)
        if message.offset <= watched.offset:
            return Change(watched, Verdict.REPEAT, False)
        watched.offset = message.offset
        verdict = watched.reply.apply(message.offset, message.event)
        ended = verdict is Verdict.COUNTED and watched.reply.state.ended
        if ended:
            watched.ended_ms = message.at_ms
        return Change(watched, verdict, ended)

    def put(self, watched: Watched) -> None:
        """Takes back what was watched before a restart; oldest first."""
        self._watched[watched.reply.id] = watched

    def get(self, reply: ReplyId) -> Watched | None:
        return self._watched.get(reply)

    def open(self) -> Iterator[Watched]:
        """The replies that have not ended, oldest first."""
        return (watched for watched in self._watched.values() if watched.ended_ms is None)

    def is_over(self, reply: ReplyId, attempt: int) -> bool:
        """Whether the reply is known here and has ended, or is at a later attempt."""
        watched = self._watched.get(reply)
        return watched is not None and (watched.ended_ms is not None or attempt < watched.reply.attempt)

    def low_water(self, offset: int) -> int:
        """Where a restart has to fold from, if all before `offset` was folded here."""
        return next((watched.first_offset for watched in self._watched.values()), offset)

    def _forget(self, now_ms: int) -> None:
        while self._watched:
            reply, oldest = next(iter(self._watched.items()))
            if oldest.ended_ms is None or now_ms - oldest.ended_ms < REMEMBERED_MS:
                return
            del self._watched[reply]


def _lives_here(reply: ReplyId, message: Message) -> bool:
    return has_reply_id_form(reply) and reply_partition(reply) == message.place.partition
