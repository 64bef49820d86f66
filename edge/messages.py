"""`POST /v1/conversations/{conversation}/messages`: a checked request in, MessagePosted out, intake's word back.

Nothing is written before the request is found good, and nothing is answered before the log says what became of it.
The candidate's log is followed before the message is sent, so intake's answer cannot be missed.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from edge.auth import Caller
from edge.bodies import body_of
from edge.edge import Edge, caller_of, edge_of
from edge.errors import ApiError, BadRequest, Conflict, Internal, NotNow, OverQuota, shown
from edge.rates import tell
from edge.requests import MessageRequest, deadline_ms, read_client_key, read_conversation, read_cursor, read_message
from edge.responses import json_response
from edge.saved import saved_reply, saved_stream
from edge.sse import EventStream
from edge.tails import SharedView
from schemas.events import MessagePosted
from schemas.ids import ConversationId, ReplyId
from schemas.reply_records import Accepted, Redirected, Rejected
from topics.outputs import Output

logger = logging.getLogger(__name__)

SSE = "text/event-stream"
RETRY_AFTER_S = 1.0
AGAIN = "the message {}; send it again with the same Idempotency-Key"

REFUSALS: Mapping[str, type[ApiError]] = {
    "conflict": Conflict,
    "conversation_busy": Conflict,
    "conversation_deleted": Conflict,
    "context_length_exceeded": BadRequest,
    "parent_not_found": BadRequest,
    "parent_not_a_question": BadRequest,
    "model_not_found": BadRequest,
    "unsafe": BadRequest,
    "quota": OverQuota,
    "history_unavailable": NotNow,
    "internal": Internal,
}
PARAMS = {"model_not_found": "model", "parent_not_found": "parent", "parent_not_a_question": "parent"}


async def post_message(request: Request) -> Response:
    edge, caller = edge_of(request), caller_of(request)
    conversation = read_conversation(request.path_params["conversation"])
    client_key = read_client_key(request.headers.get("Idempotency-Key")) or f"edge-{uuid.uuid4().hex}"
    async with body_of(request) as body:
        asked = read_message(body, edge.config.defaults)
        cursor_of(request)
        posted = message_posted(edge, caller, conversation, client_key, asked)
        request.state.request_id = posted.reply
        with edge.tails.following(posted.reply) as shared:
            await decide(edge, shared, posted, len(body))
            tell(request, shared.view.reply.end, edge.now_ms())
            match shared.view.reply.end:
                case Rejected() as rejected:
                    raise refusal(rejected, "text")
                case Redirected(to=target):
                    request.state.request_id = target
                    return await _answer_of(request, edge, caller, conversation, target)
            return _answer(request, edge, conversation, shared)


def message_posted(
    edge: Edge, caller: Caller, conversation: ConversationId, client_key: str, asked: MessageRequest
) -> MessagePosted:
    return MessagePosted(
        user=caller.user,
        account=caller.account,
        plan=caller.plan,
        conversation=conversation,
        reply=edge.mint(),
        client_key=client_key,
        body_hash=asked.body_hash,
        text=asked.text,
        model=asked.model,
        sampling=asked.asked.drawn(edge.draw_seed()),
        deadline_ms=deadline_ms(asked.deadline_s),
        on_disconnect=asked.on_disconnect,
        parent=asked.parent,
        system=asked.system,
    )


def refusal(rejected: Rejected, prompt: str) -> ApiError:
    """Intake's refusal as HTTP has it; a reason that this version does not know is an internal error. `prompt` is the
    field that the prompt was made of.
    """
    kind = REFUSALS.get(rejected.reason, Internal)
    after_s = None if rejected.retry_after_ms is None else rejected.retry_after_ms / 1000
    message = rejected.detail or rejected.reason
    if rejected.reply is not None and rejected.reply not in message:
        message = f"{message} (reply {rejected.reply})"
    if kind is NotNow and after_s is None:
        after_s = RETRY_AFTER_S
    param = {"context_length_exceeded": prompt, "unsafe": prompt, **PARAMS}.get(rejected.reason)
    return kind(message, param=param, code=rejected.reason, retry_after_s=after_s)


async def decide(edge: Edge, shared: SharedView, posted: MessagePosted, size: int) -> None:
    """Sends the message, `size` bytes long, when it is its user's turn, and waits until the log says what became of it.
    Raises OverQuota, NotNow.
    """
    async with edge.turns.turn(posted.user, size, edge.config.accept_timeout):
        await _decided(edge, shared, posted)


async def _decided(edge: Edge, shared: SharedView, posted: MessagePosted) -> None:
    began = time.perf_counter()
    try:
        await answered(edge, shared, edge.routes.message(posted.user, posted), AGAIN)
    finally:
        edge.metrics.accept_seconds.observe(time.perf_counter() - began)


async def answered(edge: Edge, shared: SharedView, asked: Output, words: str) -> None:
    """Sends what intake is asked, and waits until the log has its answer. Raises NotNow, whose `words` get why."""
    outcome = edge.writer.send(asked)
    outcome.add_done_callback(lambda _: shared.ring())
    view = shared.view

    def failed() -> bool:
        return outcome.done() and outcome.exception() is not None

    await shared.until(lambda: view.seen or failed(), edge.config.accept_timeout)
    if not view.seen:
        why = "was not taken by the log" if failed() else f"was not decided in {edge.config.accept_timeout:g} s"
        raise NotNow(words.format(why), retry_after_s=RETRY_AFTER_S)


async def _answer_of(
    request: Request, edge: Edge, caller: Caller, conversation: ConversationId, target: str
) -> Response:
    """The answer to a repeat: the first reply, live or from its log, or from the store when that has expired.

    The redirection lies in another partition, so it may be read before the reply that it names has any record.
    """
    reply = first_reply(edge, conversation, target)
    with edge.tails.reading(reply) as shared:
        if await edge.look_up(shared) and shared.view.owner == caller.user:
            return _answer(request, edge, conversation, shared)
    saved = await saved_reply(edge, caller.user, reply)
    if saved is None:
        raise NotNow(f"reply {reply} to the first of these requests cannot be read now", retry_after_s=RETRY_AFTER_S)
    if wants_stream(request):
        return saved_stream(saved, cursor_of(request))
    return _receipt(saved.turn.reply, conversation)


def first_reply(edge: Edge, conversation: ConversationId, target: str) -> ReplyId:
    """The reply that a message was redirected to. Raises Internal when it is none of this cell: whoever may write to
    the log may have written it.
    """
    if (reply := edge.genuine(target)) is None:
        logger.error("a message of conversation %s was redirected to %s, no reply id", conversation, shown(target))
        raise Internal("the reply to the first of these requests has no readable name", retry_after_s=RETRY_AFTER_S)
    return reply


def _answer(request: Request, edge: Edge, conversation: ConversationId, shared: SharedView) -> Response:
    accepted = shared.view.reply.accepted
    tell(request, accepted, edge.now_ms())
    if wants_stream(request):
        return EventStream(edge, shared, cursor_of(request))
    return _receipt(shared.view.reply.id, conversation, accepted)


def _receipt(reply: ReplyId, conversation: ConversationId, accepted: Accepted | None = None) -> Response:
    """`max_tokens` tells what is left of those that were asked for; `asked_model` that another one answers."""
    body: dict[str, str | int] = {"reply": reply, "conversation": conversation, "url": f"/v1/replies/{reply}/events"}
    if accepted and accepted.max_tokens:
        body["max_tokens"] = accepted.max_tokens
    if accepted and accepted.asked_model:
        body |= {"model": accepted.model, "asked_model": accepted.asked_model}
    return json_response(body, 202)


def cursor_of(request: Request) -> int | None:
    """The last event that the client of a repeat has seen of the first reply. Raises BadRequest."""
    return read_cursor(request.headers.get("Last-Event-ID"), None)


def wants_stream(request: Request) -> bool:
    """The client's Accept header names SSE."""
    accepted = ",".join(request.headers.getlist("Accept")).lower()
    return any(part.split(";")[0].strip() == SSE for part in accepted.split(","))
