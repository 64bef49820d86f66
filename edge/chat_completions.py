"""`POST /v1/chat/completions`: the messages given are the prompt, the reply comes as OpenAI's clients expect it.

Nothing is stored, and a client that goes away cancels. A stream that is whole says [DONE]; one that breaks says an
error, or breaks off: it never looks finished.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import uuid

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edge import chunks
from edge.auth import Caller
from edge.bodies import body_of
from edge.chunks import Chunks
from edge.completion_requests import CompletionRequest, read_completion
from edge.edge import Edge, Listener, caller_of, edge_of
from edge.errors import ApiError, BadRequest, NotFound, NotNow, error_body, error_response
from edge.frames import data_frame
from edge.messages import RETRY_AFTER_S, decide, first_reply, refusal
from edge.rates import tell
from edge.requests import deadline_ms, read_client_key
from edge.sse import MOST_FRAMES_A_SEND, ReplyResponse, rings
from edge.tails import SharedView
from schemas.events import MessagePosted
from schemas.ids import ConversationId
from schemas.reply_records import Redirected, Rejected, Stopped

CANCEL_WAIT_S = 5.0


async def create_completion(request: Request) -> Response:
    edge, caller = edge_of(request), caller_of(request)
    client_key = read_client_key(request.headers.get("Idempotency-Key")) or ""
    if cursor := request.headers.get("Last-Event-ID"):
        raise BadRequest(
            f"Last-Event-ID={cursor[:20]!r}: chunks of a completion have no ids; events of a reply have some",
            param="Last-Event-ID",
        )
    async with body_of(request) as body:
        asked = read_completion(body, edge.config.defaults)
        posted = _posted(edge, caller, client_key, asked)
        request.state.request_id = posted.reply
        with edge.tails.following(posted.reply) as shared:
            await decide(edge, shared, posted, len(body))
            tell(request, shared.view.reply.accepted or shared.view.reply.end, edge.now_ms())
            match shared.view.reply.end:
                case Rejected(reason="model_not_found", detail=detail):
                    raise NotFound(detail, param="model", code="model_not_found")
                case Rejected() as rejected:
                    raise refusal(rejected, "messages")
                case Redirected(to=target):
                    first = first_reply(edge, posted.conversation, target)
                    request.state.request_id = first
                    with edge.tails.reading(first) as before:
                        if await edge.look_up(before) and before.view.owner == caller.user:
                            tell(request, before.view.reply.accepted, edge.now_ms())
                            return _answer(edge, before, asked, repeatable=True)
                    raise NotNow(f"reply {first} to the first of these requests cannot be read now", retry_after_s=1)
            return _answer(edge, shared, asked, repeatable=bool(client_key))


def _posted(edge: Edge, caller: Caller, client_key: str, asked: CompletionRequest) -> MessagePosted:
    return MessagePosted(
        user=caller.user,
        account=caller.account,
        plan=caller.plan,
        conversation=conversation_of(client_key),
        reply=edge.mint(),
        client_key=client_key,
        body_hash=asked.body_hash,
        text="",
        model=asked.model,
        sampling=asked.asked.drawn(edge.draw_seed()),
        deadline_ms=deadline_ms(asked.deadline_s),
        on_disconnect="cancel",
        messages=asked.messages,
    )


def conversation_of(client_key: str) -> ConversationId:
    """The conversation that a completion is alone in: of its key, so that a repeat meets it, else a fresh one. No user
    can name it, for a conversation's id has no colon.
    """
    name = hashlib.sha256(client_key.encode()).hexdigest()[:32] if client_key else uuid.uuid4().hex
    return ConversationId(f"completion:{name}")


def _answer(edge: Edge, shared: SharedView, asked: CompletionRequest, *, repeatable: bool) -> Response:
    if asked.stream:
        return CompletionStream(edge, shared, repeatable, Chunks(shared.view.reply, usage=asked.usage))
    return Completion(edge, shared, repeatable)


class Completion(ReplyResponse):
    """The whole completion, once the reply has ended. Its client is a listener, who cancels the reply by going."""

    def __init__(self, edge: Edge, shared: SharedView, repeatable: bool) -> None:
        super().__init__(edge, shared)
        self._repeatable = repeatable

    async def _answer(self, scope: Scope, receive: Receive, send: Send, gone: asyncio.Task[None]) -> None:
        with self._listening() as listener:
            await super()._answer(scope, receive, send, gone)
            if not self._view.ended and (gone.done() or not self._repeatable):
                await self._cancel(listener)

    async def _begin(self, gone: asyncio.Task[None]) -> Response | None:
        while not gone.done():
            self._bell.clear()
            if trouble := self._trouble():
                return error_response(trouble)
            if self._view.ended:
                return Response(chunks.whole(self._view.reply), media_type="application/json")
            await self._bell.wait()
        return None

    def _trouble(self) -> ApiError | None:
        """What keeps this edge from giving the completion."""
        if refusal := self._taken_back():
            return refusal
        if self._view.ended:
            return chunks.failure(self._view.reply)
        if self._shared.failure:
            return NotNow("the reply log cannot be read now; send the request again", retry_after_s=RETRY_AFTER_S)
        if self._edge.draining:
            return NotNow("this edge is leaving; send the request again", retry_after_s=RETRY_AFTER_S)
        return None

    async def _cancel(self, listener: Listener) -> None:
        """Stops the reply, unless somebody else listens; void if somebody came whom this edge has not seen yet."""
        reply, told = self._view.reply, tuple(listener)
        with contextlib.suppress(NotNow):
            await self._shared.until(lambda: self._view.ended or told in reply.listeners, CANCEL_WAIT_S)
        if not self._view.ended and not reply.listeners - {told}:
            self._edge.writer.tell(self._edge.routes.reply(reply.id, Stopped("abandoned", reply.attached_offset)))


class CompletionStream(Completion):
    """Its chunks as they come. While the reply waits for its turn nothing is sent, so that a refusal has a status; a
    wait longer than the keep-alive begins the stream with a comment.
    """

    def __init__(self, edge: Edge, shared: SharedView, repeatable: bool, made: Chunks) -> None:
        super().__init__(edge, shared, repeatable)
        self._chunks = made
        self._opened = False
        self._sent = 0

    async def _begin(self, gone: asyncio.Task[None]) -> Response | None:
        patience = asyncio.get_running_loop().time() + self._edge.config.keep_alive
        while not gone.done():
            self._bell.clear()
            if not self._view.reply.last and (trouble := self._trouble()):
                return error_response(trouble)
            left = patience - asyncio.get_running_loop().time()
            if self._begun or not await rings(self._bell, left):
                return None
        return None

    @property
    def _begun(self) -> bool:
        """A replica has it, so there is something to tell; one that was lost before it began changes nothing."""
        return self._view.reply.started is not None or self._view.ended

    def _ready(self) -> bytes:
        reply = self._view.reply
        opening = b""
        if not self._opened and self._begun and (reply.last or self._trouble() is None):
            self._opened, opening = True, self._chunks.opening()
        upto = min(reply.last, self._sent + MOST_FRAMES_A_SEND)
        made = b"".join(self._chunks.token(n) for n in range(self._sent + 1, upto + 1))
        self._sent = upto
        return opening + made

    def _last_words(self) -> bytes | None:
        if self._sent < self._view.reply.last:
            return None
        if trouble := self._trouble():
            return self._said(trouble)
        return self._chunks.ending() if self._view.ended else None

    def _said(self, error: ApiError) -> bytes:
        return data_frame(error_body(error.message, error.type, error.code_shown, error.param))
