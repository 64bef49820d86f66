"""What the store knows of a reply whose log has expired, as the log's own answers would have said it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from edge.edge import Edge
from edge.errors import Gone, NotNow
from edge.frames import EVENT_OF_STATUS, stored_frames, usage
from edge.sse import HEADERS, past_the_end
from schemas.events import TurnSaved
from schemas.ids import ReplyId, UserId
from topics.errors import TopicsError


@dataclass(frozen=True, slots=True)
class SavedReply:
    """The assistant's turn of an ended reply, and the user's that it answers, if that is saved too."""

    turn: TurnSaved
    user_turn: TurnSaved | None

    @property
    def state(self) -> str:
        return EVENT_OF_STATUS.get(self.turn.turn.status, "failed")

    @property
    def cursor(self) -> int:
        """The event id of its end."""
        return self.turn.completion_tokens + 1

    @property
    def frames(self) -> bytes:
        return stored_frames(self.user_turn, self.turn)

    def body(self) -> dict[str, Any]:
        """The same fields as a reply that is read from the log."""
        return {
            "id": self.turn.reply,
            "conversation": self.turn.conversation,
            "model": self.turn.model,
            "state": self.state,
            "text": self.turn.turn.text,
            "usage": usage(self.turn.prompt_tokens, self.turn.completion_tokens),
            "finish_reason": self.turn.reason if self.state == "finished" else None,
            "cursor": self.cursor,
        }


def expired(saved: SavedReply) -> Gone:
    """The answer to who wants the rest of a stream: the store has the text, but not where its tokens began."""
    reply, conversation = saved.turn.reply, saved.turn.conversation
    return Gone(
        f"reply {reply} has left the log; its text is in conversation {conversation}, "
        f"at /v1/conversations/{conversation} and /v1/replies/{reply}"
    )


def saved_stream(saved: SavedReply, cursor: int | None) -> Response:
    """The whole stream at once; nothing for who has seen its end. Raises BadRequest or Gone."""
    if cursor is None:
        return Response(saved.frames, headers=HEADERS)
    if cursor == saved.cursor:
        return Response(status_code=204)
    raise past_the_end(cursor, saved.cursor) if cursor > saved.cursor else expired(saved)


async def saved_reply(edge: Edge, user: UserId, reply: ReplyId) -> SavedReply | None:
    """None when the store has no such answer for that user. Raises NotNow when it cannot be read."""
    try:
        turns = await asyncio.to_thread(edge.store.turns_of_reply, user, reply)
    except TopicsError as error:
        raise NotNow("saved conversations cannot be read now", retry_after_s=1) from error
    by_role = {turn.turn.role: turn for turn in turns}
    answer = by_role.get("assistant")
    return SavedReply(answer, by_role.get("user")) if answer else None
