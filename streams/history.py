"""History: the turns of `turns`, in their order, to the conversation store.

The offsets are committed only after the store has them for good; a turn that is saved again is the same turn.
"""

from __future__ import annotations

from schemas.events import TurnSaved
from streams.stage import NOTHING, Decision, Message, Stage
from topics.catalog import TURNS


class History(Stage):
    name = "history"
    inputs = (TURNS,)

    def apply(self, message: Message) -> Decision:
        return Decision(projected=(message,)) if isinstance(message.event, TurnSaved) else NOTHING
