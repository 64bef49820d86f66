"""The router by hand: requests and beats in, what goes into which lane out."""

from __future__ import annotations

from schemas.events import GenerateAssigned
from schemas.ids import ReplyId
from streams.router import Router
from streams.stage import Decision
from tests.unit.streams.staged import ROUTES, T0, Driven, reply_id, request
from topics.catalog import TIERS, generate_topic
from topics.log import Place

BACKLOGS = {tier: Place(generate_topic("main", tier), 0) for tier in TIERS}


class Routed(Driven):
    def __init__(self, limit: int = 100) -> None:
        super().__init__(Router("main", limit, ROUTES), *BACKLOGS.values())

    def ask(self, n: int, tier: str = "paid", at_ms: int = T0, prompt: str = "") -> Decision:
        return self(BACKLOGS[tier], request(n, tier, prompt=prompt), at_ms, reply_id(n))

    def slots(self, *prompts: str) -> list[int]:
        """Where a request of each prompt goes."""
        return [slot for n, prompt in enumerate(prompts) for slot, _ in sent(self.ask(n, prompt=prompt))]

    def committed(self, tier: str) -> int:
        return self.stage.position(BACKLOGS[tier], len(self.log.get(BACKLOGS[tier], ()))).offset


def sent(decision: Decision) -> list[tuple[int, ReplyId]]:
    """(slot, reply) of what went into lanes, in order."""
    return [(o.place.partition, o.event.request.reply) for o in decision.first if isinstance(o.event, GenerateAssigned)]


def replies(decision: Decision) -> list[ReplyId]:
    return [reply for _, reply in sent(decision)]
