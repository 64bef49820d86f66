"""The records of quotas: what plans allow, what a user has used, and what is told of it.

Amounts are integers. A limit counts one of `requests`, `input`, `output` (tokens of prompts and of replies), `tokens`
(both) and `replies` (that run at once). `streams/quota.py` keeps the ledger, `streams/windows.py` reads windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schemas.ids import ReplyId, UserId

REQUESTS, INPUT, OUTPUT, TOKENS, REPLIES = "requests", "input", "output", "tokens", "replies"
COUNTED = (REQUESTS, INPUT, OUTPUT, TOKENS, REPLIES)
EACH_MODEL = "*"


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `most` of `what` in a `window`, which replies that run at once do not have.

    `model` `*`: each model by itself, but for those that other limits of the same plan or user name.
    """

    model: str
    what: str
    most: int
    window: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """`mini` is the model that answers past a limit, none without. Of a cached prompt token `cached_percent` counts.

    A request that asks for no max_tokens reserves `default_max_tokens` at most, where tokens are limited.
    """

    name: str
    tier: str
    limits: tuple[Limit, ...]
    mini: str = ""
    default_max_tokens: int = 512
    cached_percent: int = 100
    time_zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class PlansLoaded:
    """All plans there are from here on in this partition of `messages`."""

    plans: tuple[Plan, ...]


@dataclass(frozen=True, slots=True)
class LimitSet:
    """What holds for one user beside the plan: a limit replaces the plan's of that model and kind. Replaces the
    LimitSet before it; an empty one leaves the plan alone. `time_zone` empty: the plan's.
    """

    user: UserId
    limits: tuple[Limit, ...]
    time_zone: str = ""


@dataclass(frozen=True, slots=True)
class UsageAsked:
    """A user's question for the balances, answered by UsageTold under `reply`. `plan` empty: the last one seen."""

    user: UserId
    reply: ReplyId
    plan: str = ""


@dataclass(frozen=True, slots=True)
class Balance:
    """One limit as it stands. `reset_ms`: when it is whole again if nothing more is used, in log time; 0: it is."""

    model: str
    what: str
    window: str
    limit: int
    used: int
    reserved: int
    reset_ms: int

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used - self.reserved)

    def shown(self) -> dict[str, Any]:
        """As JSON has it: at GET /v1/usage and of `laneway usage --json`."""
        return {
            "model": self.model,
            "what": self.what,
            "window": self.window or None,
            "limit": self.limit,
            "used": self.used,
            "reserved": self.reserved,
            "remaining": self.remaining,
            "reset_ms": self.reset_ms or None,
        }


@dataclass(frozen=True, slots=True)
class Bucket:
    """What was used in a part of a window that begins at `start_ms`."""

    start_ms: int
    requests: int
    input: int
    output: int


@dataclass(frozen=True, slots=True)
class Spent:
    """What was used in one window, the oldest bucket first.

    `time_zone` is that of its days or months; empty for a window that slides, and in old records for the user's zone.
    """

    window: str
    buckets: tuple[Bucket, ...]
    time_zone: str = ""


@dataclass(frozen=True, slots=True)
class Reserved:
    """What an open reply may use at most, since its admission at `at_ms`."""

    reply: ReplyId
    at_ms: int
    input: int
    output: int
    cached_percent: int = 100

    @property
    def requests(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class Ledger:
    """One user's use of one model."""

    model: str
    spent: tuple[Spent, ...] = ()
    open: tuple[Reserved, ...] = ()


@dataclass(frozen=True, slots=True)
class QuotaKept:
    """Intake's state of one user's quotas, as its changelog holds it; `plan` is the one last seen."""

    user: UserId
    touched_ms: int
    plan: str
    ledgers: tuple[Ledger, ...] = ()
    override: LimitSet | None = None
