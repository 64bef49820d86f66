"""One reply as its readers see it: records of the log in, SSE frames out, made once and shared by all its streams.

A frame is numbered when its event has an id: 0 for `accepted`, n for token n, last + 1 for the end. Frames only ever
grow at the end, so a stream is nothing but an index into them.
"""

from __future__ import annotations

from edge.frames import PREEMPTED, QUEUED, RESUMING, accepted_frame, end_frame, token_frame
from schemas import reply_records as r
from schemas.ids import ReplyId, UserId
from schemas.reply import Record, Reply, State, Verdict

_UNNUMBERED = {r.Preempted: PREEMPTED, r.AttemptOpened: RESUMING}


class ReplyView:
    """A reply and its frames. A reply that was never accepted has no frames, whatever became of it."""

    def __init__(self, reply: ReplyId) -> None:
        self.reply = Reply(reply)
        self.frames: list[bytes] = []
        self._index_of_id: list[int] = []

    @property
    def owner(self) -> UserId | None:
        return self.reply.accepted.user if self.reply.accepted else None

    @property
    def seen(self) -> bool:
        """The log has said what becomes of this reply's message."""
        return self.reply.state is not State.UNSEEN

    @property
    def ended(self) -> bool:
        return self.reply.state.ended

    @property
    def newest_id(self) -> int:
        """The highest event id so far; -1 before `accepted`."""
        return len(self._index_of_id) - 1

    def apply(self, offset: int, record: Record) -> None:
        """Folds the record at `offset` in, and makes the frames of what it brought to light."""
        reply = self.reply
        if reply.apply(offset, record) is not Verdict.COUNTED or reply.accepted is None:
            return
        if type(record) is r.Accepted:
            self._add_numbered(accepted_frame(reply.id, record))
            self.frames.append(QUEUED)
        for n in range(len(self._index_of_id), reply.last + 1):
            self._add_numbered(token_frame(n, reply.texts[n - 1], reply.logprobs.get(n)))
        if type(record) is r.Tokens and reply.end is None:
            return
        if unnumbered := _UNNUMBERED.get(type(record)):
            self.frames.append(unnumbered)
        if reply.end is not None:
            self._add_numbered(end_frame(reply))

    def index_after(self, cursor: int | None) -> int:
        """Where in `frames` a reader goes on who has seen event id `cursor`, at most `newest_id`; None: nothing."""
        return 0 if cursor is None else self._index_of_id[cursor] + 1

    def frames_after(self, cursor: int | None) -> list[bytes]:
        return self.frames[self.index_after(cursor) :]

    def _add_numbered(self, frame: bytes) -> None:
        self._index_of_id.append(len(self.frames))
        self.frames.append(frame)
