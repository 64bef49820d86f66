"""History: the turns of `turns`, and what became of whole conversations, to the conversation store.

The offsets are committed only after the store has them for good; a turn that is saved again is the same turn.
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

    def __init__(self, anew: bool = False) -> None:
        """`anew`: the store is empty, so it is built from the oldest turn that the log has, whatever was committed."""
        self._anew = anew
        self._begun: set[Place] = set()

    def apply(self, message: Message) -> Decision:
        if not isinstance(message.event, TurnSaved | ConversationRenamed | ConversationDeleted):
            return NOTHING
        check_savable(message.event)
        return Decision(projected=(message,))

    def assigned(self, place: Place, committed: Position | None) -> int | None:
        first = place not in self._begun
        self._begun.add(place)
        return 0 if self._anew and first else None
