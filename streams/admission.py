"""What becomes of one message: accepted, redirected to the reply that its key already has, refused, or left waiting.

In: the state of its conversation and the message. Out: an Answer, or None while it must wait. Pure, so the same
message in the same state is answered the same by a replay and by a zombie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from schemas.events import (
    ClientKey,
    GenerateRequested,
    MessagePosted,
    Turn,
    TurnSaved,
    pack_ids,
)
from schemas.ids import assistant_message_id, user_message_id
from schemas.kept_records import ConversationKept, ParkedMessage
from schemas.reply_records import Accepted, Redirected, Rejected
from schemas.tokenizer import ChatTokenizer
from streams.context import Prompt, TooLong, build, build_whole

BUSY_PATIENCE_MS = 2_000
MOST_KEYS = 1_000
TIER_OF_PLAN = {"business": "paid", "paid": "paid", "free": "free"}


@dataclass(frozen=True)
class Model:
    """A model that is served: its tokenizer with the chat template, and the pool of replicas that runs it."""

    tokenizer: ChatTokenizer
    pool: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What intake says to a message; with Accepted come the request and, if it is stored, the user's turn."""

    message: MessagePosted
    record: Accepted | Redirected | Rejected
    request: GenerateRequested | None = None
    turn: TurnSaved | None = None


def admit(models: Mapping[str, Model], kept: ConversationKept, parked: ParkedMessage, now_ms: int) -> Answer | None:
    """Answers one message of a loaded conversation; None leaves it parked behind the open reply."""
    message = parked.message
    used = next((key for key in kept.keys if key.key == message.client_key), None)
    if used is not None:
        same = used.body_hash == message.body_hash
        return Answer(message, Redirected(used.reply) if same else _conflict(message))
    model = models.get(message.model)
    if model is None:
        served = ", ".join(sorted(models))
        return Answer(message, Rejected("model_not_found", f"model {message.model!r} is not served here: {served} is"))
    if kept.open_reply is not None and not message.messages:
        waited = now_ms - parked.since_ms
        return None if waited < BUSY_PATIENCE_MS else Answer(message, busy(kept))
    return _accept(model, kept, parked)


def evolve(kept: ConversationKept, answer: Answer) -> ConversationKept:
    """The conversation after an answer: an accepted message has its key, its turn and the open reply."""
    if answer.request is None:
        return kept
    message = answer.message
    return replace(
        kept,
        turns=(*kept.turns, answer.turn.turn) if answer.turn else kept.turns,
        keys=(*kept.keys, ClientKey(message.client_key, message.body_hash, message.reply))[-MOST_KEYS:],
        open_reply=message.reply,
    )


def _accept(model: Model, kept: ConversationKept, parked: ParkedMessage) -> Answer:
    message = parked.message
    stored, asked = not message.messages, message.sampling.max_tokens
    if stored:
        prompt = build(model.tokenizer, kept.turns, message.text, asked)
    else:
        prompt = build_whole(model.tokenizer, message.messages, asked)
    if isinstance(prompt, TooLong):
        return Answer(message, Rejected("context_length_exceeded", f"{prompt} (model {message.model!r})"))
    tier = TIER_OF_PLAN.get(message.plan, "free")
    deadline_ms = parked.since_ms + message.deadline_ms
    accepted = Accepted(
        user=message.user,
        account=message.account,
        plan=message.plan,
        conversation=message.conversation,
        user_message=user_message_id(message.reply),
        assistant_message=assistant_message_id(message.reply),
        stored=stored,
        model=message.model,
        pool=model.pool,
        tier=tier,
        prompt_tokens=len(prompt.ids),
        seed=message.sampling.seed,
        deadline_ms=deadline_ms,
        on_disconnect=message.on_disconnect,
        checked=False,
        tokenizer=model.tokenizer.fingerprint,
        max_tokens=prompt.max_tokens,
        posted_ms=parked.since_ms,
    )
    request = GenerateRequested(
        reply=message.reply,
        attempt=1,
        user=message.user,
        conversation=message.conversation,
        model=message.model,
        pool=model.pool,
        tier=tier,
        prompt=pack_ids(prompt.ids),
        accepted=b"",
        sampling=replace(message.sampling, max_tokens=prompt.max_tokens),
        deadline_ms=deadline_ms,
        account=message.account,
    )
    return Answer(message, accepted, request, _user_turn(model, kept, parked, prompt) if stored else None)


def _user_turn(model: Model, kept: ConversationKept, parked: ParkedMessage, prompt: Prompt) -> TurnSaved:
    message = parked.message
    return TurnSaved(
        user=message.user,
        conversation=message.conversation,
        turn=Turn(
            message=user_message_id(message.reply),
            parent=kept.turns[-1].message if kept.turns else None,
            role="user",
            text=message.text,
            token_ids=pack_ids(prompt.message_ids),
            tokenizer=model.tokenizer.fingerprint,
            status="complete",
        ),
        reply=message.reply,
        model=message.model,
        created_ms=parked.since_ms,
        client_key=message.client_key,
        body_hash=message.body_hash,
        posted_ms=parked.since_ms,
    )


def _conflict(message: MessagePosted) -> Rejected:
    return Rejected("conflict", f"Idempotency-Key {message.client_key!r} was used before with another request body")


def busy(kept: ConversationKept) -> Rejected:
    """The refusal of a message that came while another one is being answered."""
    detail = f"conversation {kept.conversation!r} still waits for {kept.open_reply or 'its history'}"
    return Rejected("conversation_busy", detail, BUSY_PATIENCE_MS, kept.open_reply)
