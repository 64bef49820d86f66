"""`GET /v1/usage`: every limit of the caller as it stands.

Intake alone knows, so it is asked as it is asked for a reply: UsageAsked into `messages`, its answer under a fresh id
in a home partition. What is told includes all that this caller was accepted before.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from edge.edge import caller_of, edge_of
from edge.errors import Internal
from edge.messages import answered
from edge.responses import json_response
from schemas.quota_records import UsageAsked
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
    limits = [balance.shown() for balance in told.balances]
    return json_response({"plan": told.plan or None, "time_zone": told.time_zone, "limits": limits})
