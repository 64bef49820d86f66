"""History: the turns of `turns`, and what became of whole conversations, to the conversation store.

The offsets are committed only after the store has them for good, and with its name: positions of another store mean
nothing in this one, which is then built from the oldest turn that the log has. A turn that is saved again is the same.
"""

from __future__ import annotations

from schemas.events import ConversationDeleted, ConversationRenamed, TurnSaved
from streams.stage import NOTHING, Decision, Message, Stage
from topics.catalog import TURNS
from topics.log import Place, Position
from topics.store.contract import SAVED_BY, check_savable


class History(Stage):
    name = SAVED_BY
    inputs = (TURNS,)

    def __init__(self, store: str = "") -> None:
        """`store`: the identity of the one that is written."""
        self._store = store

    def apply(self, message: Message) -> Decision:
        if not isinstance(message.event, TurnSaved | ConversationRenamed | ConversationDeleted):
            return NOTHING
        check_savable(message.event)
        return Decision(projected=(message,))

    def assigned(self, place: Place, committed: Position | None) -> int | None:
        return None if committed is not None and committed.metadata == self._store else 0

    def position(self, place: Place, offset: int) -> Position:
        return Position(offset, self._store)
