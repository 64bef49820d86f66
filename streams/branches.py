"""Which turns a message goes on from: those at hand, or those of another branch, which the store has to be asked for.

In: what intake holds of the conversation, and the message that its user chose as the parent. A message without one goes
on from where the conversation was last (`leaf`). Turns at hand are enough when they reach back to where the prompt of
their last question began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.events import ROOT, MessagePosted, Turn
from schemas.ids import MessageId, assistant_message_id, user_message_id
from schemas.kept_records import ConversationKept


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The turns are in the store: of the branch that ends in `leaf`, None for the newest message."""

    leaf: MessageId | None


def is_unknown(kept: ConversationKept) -> bool:
    """Whether the store was never asked for this conversation, so that not even its keys are known."""
    return kept.dropped and kept.leaf is None


def was_said(kept: ConversationKept, message: MessageId | None) -> bool:
    """Whether intake knows the message, so that a store that does not is behind."""
    return any(message in (user_message_id(key.reply), assistant_message_id(key.reply)) for key in kept.keys)


def turns_before(kept: ConversationKept, message: MessagePosted) -> tuple[Turn, ...] | Elsewhere:
    """The branch that the message goes on from, its parent last."""
    if message.parent == ROOT:
        return ()
    end = message.parent or kept.leaf
    if not kept.dropped and end == kept.branch:
        return kept.turns
    ahead = next((kept.turns[: n + 1] for n, turn in enumerate(kept.turns) if turn.message == end), ())
    return ahead if reaches_back(ahead) else Elsewhere(end)


def reaches_back(turns: Sequence[Turn]) -> bool:
    begins = next((turn.begins for turn in reversed(turns) if turn.role == "user"), None)
    if begins is None:
        return bool(turns) and turns[0].parent is None
    return any(turn.message == begins for turn in turns)
