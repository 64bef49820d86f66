"""Plans with small limits, and who goes on from where: drawn from a seed of their own, so that the rest of a plan stays
as it is without them. All limits of a user count in one window.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from schemas.events import ConversationDeleted, ConversationRenamed
from schemas.ids import ConversationId, UserId
from schemas.quota_records import INPUT, OUTPUT, REPLIES, REQUESTS, TOKENS, Limit, LimitSet, Plan
from tests.simulation.clients import PLAN_OF, STAFF, Ask

MINI = "mini"

# A first prompt has some 45 tokens, and each exchange before it some 30 more.
AMOUNTS = {
    REQUESTS: (0, 1, 2, 3),
    TOKENS: (60, 110, 180, 400),
    INPUT: (50, 100, 220),
    OUTPUT: (3, 12, 30),
    REPLIES: (1, 1, 2),
}
WINDOWS = ("7d", "7d", "day", "10m", "20s", "3s")


@dataclass(frozen=True)
class Change:
    """Something that a user or an operator does at a time: a conversation gets a title, or is deleted; a user gets
    limits of his own, asks for his balances, or is deleted with all that he has said (`what`).
    """

    name: str
    user: str
    conversation: str
    at_ms: int
    title: str | None = None
    what: str = "conversation"
    limits: tuple[Limit, ...] = ()

    @property
    def event(self) -> ConversationRenamed | ConversationDeleted | LimitSet:
        user, conversation = UserId(self.user), ConversationId(self.conversation)
        if self.what == "limits":
            return LimitSet(user, self.limits)
        if self.title is None:
            return ConversationDeleted(user, conversation)
        return ConversationRenamed(user, conversation, self.title)


def plans_of(random: Random, mini: bool) -> tuple[Plan, ...]:
    """`staff`, who nothing limits, and the plans of the two users."""
    return (Plan(STAFF, "paid", ()), *(_plan(random, name, mini) for name in PLAN_OF.values()))


def _plan(random: Random, name: str, mini: bool) -> Plan:
    window = random.choice(WINDOWS)
    limits = _limits(random, "*", window)
    if mini and random.random() < 0.6:
        limits += _limits(random, MINI, window)
    return Plan(
        name,
        name,
        limits if random.random() < 0.85 else (),
        mini=MINI if mini and random.random() < 0.8 else "",
        default_max_tokens=random.choice((4, 512)),
        cached_percent=random.choice((100, 100, 50, 0)),
    )


def _limits(random: Random, model: str, window: str) -> tuple[Limit, ...]:
    kinds = random.sample(sorted(AMOUNTS), random.choice((1, 1, 2, 3)))
    return tuple(Limit(model, what, random.choice(AMOUNTS[what]), "" if what == REPLIES else window) for what in kinds)


def changes_of(random: Random, plans: tuple[Plan, ...], asks: tuple[Ask, ...]) -> tuple[Change, ...]:
    """Users who ask for their balances, get limits of their own, or are deleted."""
    found = []
    for n in range(random.choice((0, 1, 2))):
        ask = random.choice(asks)
        found.append(Change(f"u{n}", ask.user, "", ask.at_ms + random.randint(0, 4_000), what="usage"))
    limited = [plan for plan in plans if any(limit.window for limit in plan.limits)]
    if limited and random.random() < 0.3:
        plan = random.choice(limited)
        user = next(user for user, name in PLAN_OF.items() if name == plan.name)
        own = _limits(random, "*", next((limit.window for limit in plan.limits if limit.window), "7d"))
        found.append(Change("l0", user, "", random.randint(0, 3_000), what="limits", limits=own))
    if random.random() < 0.15:
        found.append(Change("x0", random.choice(asks).user, "", random.randint(500, 6_000), what="everything"))
    return tuple(found)


def branching(random: Random, asks: tuple[Ask, ...]) -> tuple[Ask, ...]:
    """Some of them edit a question of one before them, ask for another answer to it, go on after it, or begin anew."""
    found: list[Ask] = []
    for ask in asks:
        if found and random.random() < 0.5:
            of = random.choice(found)
            branch = random.choice(("edit", "edit", "again", "again", "after", "root"))
            text = of.text if branch == "again" else ask.text
            at_ms = of.at_ms + random.randint(300, 4_000)
            there = replace(ask, user=of.user, conversation=of.conversation, at_ms=at_ms)
            ask = replace(there, branch=branch, of=of.name, text=text)
        if random.random() < 0.15:
            ask = replace(ask, system=random.choice(("", "Say less.")))
        found.append(replace(ask, max_tokens=random.choice((ask.max_tokens, ask.max_tokens, 0))))
    return tuple(found)
