"""`GET /v1/usage`: every limit of the caller as it stands.

Intake alone knows, so it is asked as it is asked for a reply: UsageAsked into `messages`, its answer under a fresh id
in a home partition. What is told includes all that this caller was accepted before.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from edge.edge import caller_of, edge_of
from edge.errors import Internal
from edge.messages import answered
from edge.responses import json_response
from schemas.quota_records import Balance, UsageAsked
from schemas.reply_records import UsageTold


async def get_usage(request: Request) -> Response:
    edge, caller = edge_of(request), caller_of(request)
    reply = edge.mint()
    with edge.tails.following(reply) as shared:
        asked = edge.routes.message(caller.user, UsageAsked(caller.user, reply, caller.plan))
        await answered(edge, shared, asked, "the question {}; ask again")
        told = shared.view.reply.end
        if not isinstance(told, UsageTold) or told.user != caller.user:
            raise Internal("the usage could not be told", retry_after_s=1)
    limits = [_limit(balance) for balance in told.balances]
    return json_response({"plan": told.plan or None, "time_zone": told.time_zone, "limits": limits})


def _limit(balance: Balance) -> dict[str, Any]:
    return {
        "model": balance.model,
        "what": balance.what,
        "window": balance.window or None,
        "limit": balance.limit,
        "used": balance.used,
        "reserved": balance.reserved,
        "remaining": balance.remaining,
        "reset_ms": balance.reset_ms or None,
    }
