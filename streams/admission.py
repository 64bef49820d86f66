"""What becomes of one message: accepted, redirected to the reply that its key already has, refused, or left waiting.

In: the state of its conversation, the message, what its user may use. Out: an Answer, or None while it must wait.
Pure, so the same message in the same state is answered the same by a replay and by a zombie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from schemas.events import (
    ROOT,
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
from streams.branches import Elsewhere, is_unknown, turns_before
from streams.context import Branch, Prompt, TooLong, build, build_whole
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
    """What intake says to a message; with Accepted come the request, if it is stored the branch with the question in it
    and the question as the user's turn unless it was there before, and if its user has a quota that with the
    reservation in it.
    """

    message: MessagePosted
    record: Accepted | Redirected | Rejected
    request: GenerateRequested | None = None
    turn: TurnSaved | None = None
    quota: QuotaKept | None = None
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and the branch that it goes on from; `again`: it was there before and is to be answered anew."""

    branch: Branch
    question: Turn
    again: bool = False


def repeated(kept: ConversationKept, message: MessagePosted) -> Answer | None:
    """The answer to a message whose key was used before, whatever goes on in the conversation; None: it was not."""
    used = next((key for key in kept.keys if key.key == message.client_key), None)
    if used is None:
        return None
    same = used.body_hash == message.body_hash
    return Answer(message, Redirected(used.reply) if same else _conflict(message))


def admit(
    models: Mapping[str, Model],
    kept: ConversationKept,
    parked: ParkedMessage,
    now_ms: int,
    allowance: Allowance = UNLIMITED,
) -> Answer | Elsewhere | None:
    """Answers one message; Elsewhere wants other turns of its conversation first, None leaves it parked behind the open
    reply.
    """
    message = parked.message
    if (answer := repeated(kept, message)) is not None:
        return answer
    stored = not message.messages
    if stored and is_unknown(kept):
        return Elsewhere(None if message.parent == ROOT else message.parent)
    if message.model not in models:
        served = ", ".join(sorted(models))
        return Answer(message, Rejected("model_not_found", f"model {message.model!r} is not served here: {served} is"))
    if kept.open_reply is not None and stored:
        waited = now_ms - parked.since_ms
        return None if waited < BUSY_PATIENCE_MS else Answer(message, busy(kept))
    asked = _asked(kept, message) if stored else None
    if isinstance(asked, Elsewhere | Answer):
        return asked
    offer = Offer(models, asked, parked, now_ms, allowance)
    answer = offer.of(message.model)
    if isinstance(answer.record, Rejected) and answer.record.reason == "quota" and offer.has_mini:
        instead = offer.of(allowance.plan.mini)
        if isinstance(instead.record, Rejected):
            return replace(answer, record=_by_both(answer.record, allowance.plan.mini, instead.record))
        return instead
    return answer


def _by_both(refusal: Rejected, mini: str, of_mini: Rejected) -> Rejected:
    """The refusal when the mini model has none either; to be asked again when the first of the two may have room."""
    waits = [wait for wait in (refusal.retry_after_ms, of_mini.retry_after_ms) if wait is not None]
    detail = f"{refusal.detail}; nor can model {mini!r} answer instead: {of_mini.detail}"
    return replace(refusal, detail=detail, retry_after_ms=min(waits, default=None))


def _asked(kept: ConversationKept, message: MessagePosted) -> Asked | Elsewhere | Answer:
    turns = turns_before(kept, message)
    if isinstance(turns, Elsewhere):
        return turns
    system = kept.system if message.system is None else message.system
    if not message.text:
        if not turns or turns[-1].role != "user":
            return Answer(message, _no_question(message))
        return Asked(Branch(turns[:-1], system), turns[-1], again=True)
    parent = None if message.parent == ROOT else message.parent or kept.leaf
    question = Turn(user_message_id(message.reply), parent, "user", message.text, b"", "", "complete")
    return Asked(Branch(turns, system), question)


def evolve(kept: ConversationKept, answer: Answer) -> ConversationKept:
    """The conversation after an answer: an accepted message has its key, its turn and the open reply."""
    if answer.request is None:
        return kept
    message = answer.message
    keys = (*kept.keys, ClientKey(message.client_key, message.body_hash, message.reply))[-MOST_KEYS:]
    kept = replace(kept, keys=keys, open_reply=message.reply)
    if not answer.turns:
        return kept
    leaf = answer.turns[-1].message
    system = kept.system if message.system is None else message.system
    return replace(kept, turns=answer.turns, leaf=leaf, branch=leaf, system=system, dropped=False)


@dataclass(frozen=True, slots=True)
class Offer:
    """A message that may have a reply, if a model has room and quota for it; `asked` None: its prompt is whole."""

    models: Mapping[str, Model]
    asked: Asked | None
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
        wished = prompt.max_tokens if message.sampling.max_tokens else 0
        wanted = Request(message.reply, len(prompt.ids), wished, prompt.max_tokens)
        grant = self.allowance.grant(name, wanted, self.now_ms)
        if isinstance(grant, Rejected):
            return Answer(message, grant)
        accepted = self._accepted(name, prompt, grant)
        request = _request(message, accepted, prompt)
        if self.asked is None:
            return Answer(message, accepted, request, None, grant.kept)
        before, question = self.asked.branch.turns, self.asked.question
        if self.asked.again:
            return Answer(message, accepted, request, None, grant.kept, (*before, question))
        ids, tokenizer = pack_ids(prompt.message_ids), model.tokenizer.fingerprint
        question = replace(question, token_ids=ids, tokenizer=tokenizer, begins=prompt.begins)
        turn = _user_turn(name, self.parked, question)
        return Answer(message, accepted, request, turn, grant.kept, (*before, question))

    def _prompt(self, model: Model) -> Prompt | TooLong:
        message, most = self.parked.message, self.parked.message.sampling.max_tokens
        if self.asked is None:
            return build_whole(model.tokenizer, message.messages, most)
        return build(model.tokenizer, self.asked.branch, self.asked.question, most)

    def _accepted(self, name: str, prompt: Prompt, grant: Grant) -> Accepted:
        message, model, asked = self.parked.message, self.models[name], self.asked
        again = asked is not None and asked.again
        return Accepted(
            user=message.user,
            account=message.account,
            plan=message.plan,
            conversation=message.conversation,
            user_message=asked.question.message if asked else user_message_id(message.reply),
            assistant_message=assistant_message_id(message.reply),
            stored=asked is not None,
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
            client_key=message.client_key if again else None,
            body_hash=message.body_hash if again else None,
            system=message.system if again else None,
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


def _user_turn(name: str, parked: ParkedMessage, question: Turn) -> TurnSaved:
    message = parked.message
    return TurnSaved(
        user=message.user,
        conversation=message.conversation,
        turn=question,
        reply=message.reply,
        model=name,
        created_ms=parked.since_ms,
        client_key=message.client_key,
        body_hash=message.body_hash,
        posted_ms=parked.since_ms,
        system=message.system,
    )


def _no_question(message: MessagePosted) -> Rejected:
    detail = f"parent {message.parent!r} is no message of yours: name the question that is to be answered again"
    return Rejected("parent_not_a_question", detail)


def parent_not_found(message: MessagePosted) -> Rejected:
    detail = f"parent {message.parent!r} is no message of conversation {message.conversation!r}"
    return Rejected("parent_not_found", detail)


def _conflict(message: MessagePosted) -> Rejected:
    return Rejected("conflict", f"Idempotency-Key {message.client_key!r} was used before with another request body")


def busy(kept: ConversationKept) -> Rejected:
    """The refusal of a message that came while another one is being answered."""
    detail = (
        f"conversation {kept.conversation!r} still waits for {kept.open_reply or 'its history'}: send it again then"
    )
    return Rejected("conversation_busy", detail, BUSY_PATIENCE_MS, kept.open_reply)
