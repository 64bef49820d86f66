"""What becomes of one message: accepted, redirected to the reply that its key already has, refused, or left waiting.

In: the state of its conversation, the message, what its user may use. Out: an Answer, or None while it must wait.
Pure, so the same message in the same state is answered the same by a replay and by a zombie.
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
from schemas.quota_records import QuotaKept
from schemas.reply_records import Accepted, Redirected, Rejected
from schemas.tokenizer import ChatTokenizer
from streams.allowances import TIER_OF_PLAN, UNLIMITED, Allowance, Grant
from streams.context import Prompt, TooLong, build, build_whole
from streams.quota import Request

BUSY_PATIENCE_MS = 2_000
MOST_KEYS = 1_000


@dataclass(frozen=True)
class Model:
    """A model that is served: its tokenizer with the chat template, and the pool of replicas that runs it."""

    tokenizer: ChatTokenizer
    pool: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What intake says to a message; with Accepted come the request, if it is stored the user's turn, and if its user
    has a quota that with the reservation in it.
    """

    message: MessagePosted
    record: Accepted | Redirected | Rejected
    request: GenerateRequested | None = None
    turn: TurnSaved | None = None
    quota: QuotaKept | None = None


def admit(
    models: Mapping[str, Model],
    kept: ConversationKept,
    parked: ParkedMessage,
    now_ms: int,
    allowance: Allowance = UNLIMITED,
) -> Answer | None:
    """Answers one message of a loaded conversation; None leaves it parked behind the open reply."""
    message = parked.message
    used = next((key for key in kept.keys if key.key == message.client_key), None)
    if used is not None:
        same = used.body_hash == message.body_hash
        return Answer(message, Redirected(used.reply) if same else _conflict(message))
    if message.model not in models:
        served = ", ".join(sorted(models))
        return Answer(message, Rejected("model_not_found", f"model {message.model!r} is not served here: {served} is"))
    if kept.open_reply is not None and not message.messages:
        waited = now_ms - parked.since_ms
        return None if waited < BUSY_PATIENCE_MS else Answer(message, busy(kept))
    offer = Offer(models, kept, parked, now_ms, allowance)
    answer = offer.of(message.model)
    if isinstance(answer.record, Rejected) and answer.record.reason == "quota" and offer.has_mini:
        instead = offer.of(allowance.plan.mini)
        return instead if instead.request else answer
    return answer


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


@dataclass(frozen=True, slots=True)
class Offer:
    """A message that may have a reply, if a model has room and quota for it."""

    models: Mapping[str, Model]
    kept: ConversationKept
    parked: ParkedMessage
    now_ms: int
    allowance: Allowance

    @property
    def has_mini(self) -> bool:
        return self.allowance.plan.mini in self.models and self.allowance.plan.mini != self.parked.message.model

    def of(self, name: str) -> Answer:
        """The answer if this model gives the reply."""
        message, model = self.parked.message, self.models[name]
        prompt = self._prompt(model)
        if isinstance(prompt, TooLong):
            return Answer(message, Rejected("context_length_exceeded", f"{prompt} (model {name!r})"))
        asked = prompt.max_tokens if message.sampling.max_tokens else 0
        wanted = Request(message.reply, len(prompt.ids), asked, prompt.max_tokens)
        grant = self.allowance.grant(name, wanted, self.now_ms)
        if isinstance(grant, Rejected):
            return Answer(message, grant)
        accepted = self._accepted(name, prompt, grant)
        turn = _user_turn(name, model, self.kept, self.parked, prompt) if accepted.stored else None
        return Answer(message, accepted, _request(message, accepted, prompt), turn, grant.kept)

    def _prompt(self, model: Model) -> Prompt | TooLong:
        message, asked = self.parked.message, self.parked.message.sampling.max_tokens
        if message.messages:
            return build_whole(model.tokenizer, message.messages, asked)
        return build(model.tokenizer, self.kept.turns, message.text, asked)

    def _accepted(self, name: str, prompt: Prompt, grant: Grant) -> Accepted:
        message, model = self.parked.message, self.models[name]
        return Accepted(
            user=message.user,
            account=message.account,
            plan=message.plan,
            conversation=message.conversation,
            user_message=user_message_id(message.reply),
            assistant_message=assistant_message_id(message.reply),
            stored=not message.messages,
            model=name,
            pool=model.pool,
            tier=self.allowance.plan.tier or TIER_OF_PLAN.get(message.plan, "free"),
            prompt_tokens=len(prompt.ids),
            seed=message.sampling.seed,
            deadline_ms=self.parked.since_ms + message.deadline_ms,
            on_disconnect=message.on_disconnect,
            checked=False,
            tokenizer=model.tokenizer.fingerprint,
            max_tokens=grant.max_tokens,
            posted_ms=self.parked.since_ms,
            asked_model=message.model if message.model != name else "",
            quota=grant.quota,
        )


def _request(message: MessagePosted, accepted: Accepted, prompt: Prompt) -> GenerateRequested:
    return GenerateRequested(
        reply=message.reply,
        attempt=1,
        user=message.user,
        conversation=message.conversation,
        model=accepted.model,
        pool=accepted.pool,
        tier=accepted.tier,
        prompt=pack_ids(prompt.ids),
        accepted=b"",
        sampling=replace(message.sampling, max_tokens=accepted.max_tokens),
        deadline_ms=accepted.deadline_ms,
        account=message.account,
    )


def _user_turn(name: str, model: Model, kept: ConversationKept, parked: ParkedMessage, prompt: Prompt) -> TurnSaved:
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
        model=name,
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
