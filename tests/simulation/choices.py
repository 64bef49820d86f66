"""Where a message goes on from, found out when it is asked: by the events of the reply before it and by what the store
shows of the conversation, as a page does. All clients of one ask post the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.events import ROOT
from schemas.ids import ConversationId, MessageId, UserId
from tests.simulation.clients import Ask, Client
from tests.simulation.surroundings import Surroundings

LOOK_EVERY_MS, PATIENCE_MS = 100, 6_000


class Choices:
    """`clients` are those that have been made so far."""

    def __init__(self, around: Surroundings, clients: Sequence[Client]) -> None:
        self._around, self._clients = around, clients
        self._chosen: dict[str, MessageId] = {}

    def begin(self, client: Client, waited_ms: int = 0) -> None:
        """Begins as soon as the message that it goes on from is known; never, if that takes too long."""
        ask = client.ask
        if ask.branch and ask.name not in self._chosen:
            found = ROOT if ask.branch == "root" else self._found(ask)
            if found is None and waited_ms < PATIENCE_MS:
                wait = lambda: self.begin(client, waited_ms + LOOK_EVERY_MS)  # noqa: E731
                self._around.world.after(LOOK_EVERY_MS, wait)
                return
            if found is None:
                client.done = "unasked"
                return
            self._chosen[ask.name] = found
        client.chosen = self._chosen.get(ask.name)
        client.begin()

    def _found(self, ask: Ask) -> MessageId | None:
        before = next((c for c in self._clients if c.ask.name == ask.of and c.question and c.done), None)
        if before is None or ask.branch == "again":
            return before.question if before else None
        if ask.branch == "after":
            return before.answer
        shown = self._around.store.inner.messages(UserId(ask.user), ConversationId(ask.conversation), 1_000)
        question = next((saved.turn for saved in shown if saved.turn.message == before.question), None)
        return (question.parent or ROOT) if question else None
