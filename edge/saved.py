"""What the store knows of a reply whose log has expired, as the log's own answers would have said it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edge.edge import Edge
from edge.frames import EVENT_OF_STATUS, stored_frames, usage
from schemas.events import TurnSaved
from schemas.ids import ReplyId, UserId


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


async def saved_reply(edge: Edge, user: UserId, reply: ReplyId) -> SavedReply | None:
    """None when the store has no such answer for that user. Raises NotNow when it cannot be read."""
    turns = await edge.stored(lambda store: store.turns_of_reply(user, reply))
    by_role = {turn.turn.role: turn for turn in turns}
    answer = by_role.get("assistant")
    return SavedReply(answer, by_role.get("user")) if answer else None
