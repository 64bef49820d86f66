"""A user's quota in the headers of an answer: the names that OpenAI's clients know.

In: what intake said with Accepted or Rejected. Out: headers, which a route puts into its request's state and `app.py`
into the answer, whatever kind of answer it is.
"""

from __future__ import annotations

import math

from starlette.requests import Request

from schemas.quota_records import REQUESTS, Balance
from schemas.reply_records import Accepted, Rejected

# Clients that retry by themselves wait no longer than this.
WORTH_RETRYING_MS = 120_000
NAMES = tuple(
    f"X-RateLimit-{figure}-{of}" for figure in ("Limit", "Remaining", "Reset") for of in ("Requests", "Tokens")
)
RETRY_AFTER_MS, SHOULD_RETRY, ASKED_MODEL = "Retry-After-Ms", "X-Should-Retry", "X-Laneway-Asked-Model"


def tell(request: Request, told: object, now_ms: int) -> None:
    """The answer to this request gets the headers of what intake has told; of other records none."""
    if isinstance(told, Accepted | Rejected):
        request.state.rates = rate_headers(told, now_ms)


def rate_headers(told: Accepted | Rejected, now_ms: int) -> dict[str, str]:
    headers: dict[str, str] = {}
    for balance in told.quota:
        of = "requests" if balance.what == REQUESTS else "tokens"
        headers |= {
            f"x-ratelimit-limit-{of}": str(balance.limit),
            f"x-ratelimit-remaining-{of}": str(balance.remaining),
            f"x-ratelimit-reset-{of}": _until(balance, now_ms),
        }
    if isinstance(told, Accepted):
        return headers | ({ASKED_MODEL.lower(): told.asked_model} if told.asked_model else {})
    if told.reason != "quota":
        return headers
    after_ms = told.retry_after_ms
    if after_ms is None or after_ms > WORTH_RETRYING_MS:
        headers[SHOULD_RETRY.lower()] = "false"
    return headers | ({} if after_ms is None else {RETRY_AFTER_MS.lower(): str(after_ms)})


def _until(balance: Balance, now_ms: int) -> str:
    """How long until the limit is whole again, as OpenAI writes it: `1h2m3s`, `20ms`, `0s`."""
    left_ms = max(0, balance.reset_ms - now_ms) if balance.reset_ms else 0
    if 0 < left_ms < 1000:
        return f"{left_ms}ms"
    minutes, seconds = divmod(math.ceil(left_ms / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    whole = f"{hours}h" if hours else ""
    return f"{whole}{minutes}m{seconds}s" if hours or minutes else f"{seconds}s"
