"""What a cell plays on: a running stack, clients that it starts, and the log to see how far they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from schemas.reply import Reply, State
from tests.chaos.client import Client
from tests.chaos.plan import REPLICAS, Ask
from tests.chaos.reading import Judge
from tests.chaos.troubled import TroubledStack
from tests.services.records import Records

TEXT = "a text of some length, said again " * 4
LONG = "a text that is said for a long time " * 12
QUIET_WITHIN_S = 120.0


class Scene:
    """`clients` are all that were ever started; the judge judges all of them."""

    def __init__(self, stack: TroubledStack, judge: Judge) -> None:
        self.stack, self.judge = stack, judge
        self.clients: list[Client] = []
        self._log = Records(stack.kafka)

    def close(self) -> None:
        self._log.__exit__(None, None, None)

    def ask(self, name: str, text: str = TEXT, edge: int = 0, **how: Any) -> Client:
        """A client that has begun, at that edge first."""
        ask = Ask(name, "ann", name, text, 0.0, **{"max_tokens": 600, "streams": True} | how)
        return self.start(Client(name, ask, replace(self.stack.edges_of("ann"), first=edge)))

    def start(self, client: Client) -> Client:
        self.clients.append(client)
        return client.start()

    def running(self, name: str, events: int = 20, **how: Any) -> Client:
        """A client whose reply has come so far."""
        client = self.ask(name, **how)
        self.until(lambda: (client.cursor or 0) >= events)
        return client

    def until(self, holds: Callable[[], object]) -> None:
        self.stack.until(holds)

    def within(self, seconds: float, holds: Callable[[], object]) -> bool:
        """Whether it comes true in that time."""
        end = time.monotonic() + seconds
        self.until(lambda: holds() or time.monotonic() >= end)
        return bool(holds())

    def pass_by(self, seconds: float) -> None:
        """A fault lasts so long."""
        self.within(seconds, lambda: False)

    def finish(self, *clients: Client) -> None:
        self.until(lambda: all(client.done for client in clients))

    def reply(self, client: Client) -> Reply:
        """As the log has it now; unseen as long as it has nothing of it."""
        found = self._log.replies().get(client.reply) if client.reply else None
        return found or Reply(client.reply)  # type: ignore[arg-type]

    def serving(self, client: Client) -> str | None:
        """The process that has the reply's current attempt: its owner, or the last that it was sent to."""
        reply = self.reply(client)
        names = [replica for attempt, replica, incarnation in reply.addressees if attempt == reply.attempt]
        return f"replica-{names[-1].rpartition('/')[2]}" if names else None

    def resumes(self, client: Client, attempt: int = 2) -> bool:
        """Whether that attempt has been opened."""
        return self.reply(client).attempt >= attempt

    def ended(self, client: Client) -> State | None:
        state = self.reply(client).state
        return state if state.ended else None

    def posted(self, client: Client) -> bool:
        return any(message.client_key == client.ask.name for message in self._log.posted())

    def verdict(self) -> list[str]:
        """Every promise that is still broken when all that was hurt is well and quiet again."""
        self.stack.heal()
        end = time.monotonic() + QUIET_WITHIN_S
        for client in self.clients:
            client.close()
        while (found := self.judge.violations(self.clients)) and time.monotonic() < end:
            self.pass_by(1.0)
        return list(map(str, found))


def other(replica: str) -> str:
    return next(name for name in REPLICAS if name != replica)
