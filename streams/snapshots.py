"""One partition of `replies` as the supervisor watches it, and its snapshots: what a restart goes on from.

A snapshot is due now and then, and is committed whole with the position up to which it was read. It has one record for
each reply that has changed since the last; the tokens of an ended one are not kept. A record that a restored reply has
in it already is not folded again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from schemas.events import pack_ids, unpack_ids
from schemas.ids import ReplyId
from schemas.kept_records import Addressee, ReplyKept
from schemas.reply import Reply, State
from schemas.reply_records import ListenerAttached
from streams.reply_table import Change, ReplyTable, Watched
from streams.stage import Message
from topics.log import Position


class WatchedPartition:
    """`caught_up`: all that lay in it when it came was read. `last_offset`: of the newest record that was."""

    def __init__(self, committed: Position | None) -> None:
        self.table = ReplyTable()
        self.caught_up = False
        self.last_offset = -1
        self.snapshot_due = True
        self._position = committed or Position(0)
        self._changed: set[ReplyId] = set()
        self._kept: dict[ReplyId, ReplyKept] = {}
        self._in_changelog: set[ReplyId] = set()

    def apply(self, message: Message) -> Change:
        self.last_offset = message.offset
        change = self.table.apply(message)
        if change.watched is not None:
            self._changed.add(change.watched.reply.id)
        return change

    def position(self, offset: int) -> Position:
        """Of the snapshot that is due, where all before `offset` was read; else of the last one."""
        if self.snapshot_due:
            self._position = Position(offset)
        return self._position

    def snapshot(self) -> Iterator[tuple[ReplyId, ReplyKept | None]]:
        """What has changed since the last, if one is due; None for a reply that is watched no more."""
        if not self.snapshot_due:
            return
        self.snapshot_due = False
        for reply in sorted(self._in_changelog | self._changed):
            watched = self.table.get(reply)
            if watched is None:
                self._in_changelog.discard(reply)
                yield reply, None
            elif reply in self._changed:
                self._in_changelog.add(reply)
                yield reply, kept_of(watched)
        self._changed.clear()

    def restore(self, reply: ReplyId, kept: ReplyKept | None) -> None:
        """One record of the changelog; None for a tombstone."""
        if kept is None:
            self._kept.pop(reply, None)
        else:
            self._kept[reply] = kept

    def restored(self) -> None:
        """The changelog has been read. What is no state of a reply in it was not written by a supervisor."""
        for kept in sorted(self._kept.values(), key=lambda kept: kept.first_offset):
            with suppress(ValueError):
                self.table.put(watched_of(kept))
        self._in_changelog = set(self._kept)
        self._kept = {}


def kept_of(watched: Watched) -> ReplyKept:
    reply = watched.reply
    ended = reply.state.ended
    return ReplyKept(
        reply=reply.id,
        offset=watched.offset,
        first_offset=watched.first_offset,
        accepted_ms=watched.accepted_ms,
        ended_ms=watched.ended_ms,
        state=reply.state.value,
        attempt=reply.attempt,
        accepted=None if ended else reply.accepted,
        owner=reply.owner,
        ids=b"" if ended else pack_ids(reply.ids),
        cleared=reply.cleared,
        finished=reply.finished,
        request=reply.request,
        addressees=() if ended else tuple(Addressee(*addressee) for addressee in reply.addressees),
        listeners=() if ended else tuple(ListenerAttached(*listener) for listener in sorted(reply.listeners)),
        attached_offset=reply.attached_offset,
    )


def watched_of(kept: ReplyKept) -> Watched:
    """The same, but for the texts of its tokens, which nobody here reads. Raises ValueError for no state of a reply."""
    ids = list(unpack_ids(kept.ids))
    reply = Reply(
        id=kept.reply,
        state=State(kept.state),
        attempt=kept.attempt,
        owner=kept.owner,
        accepted=kept.accepted,
        ids=ids,
        texts=[""] * len(ids),
        cleared=kept.cleared,
        finished=kept.finished,
        request=kept.request,
        addressees=[(one.attempt, one.replica, one.incarnation) for one in kept.addressees],
        listeners={(one.edge, one.stream) for one in kept.listeners},
        attached_offset=kept.attached_offset,
    )
    return Watched(reply, kept.first_offset, kept.accepted_ms, kept.ended_ms, kept.offset)
