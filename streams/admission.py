"""What becomes of one message: accepted, redirected to the reply that its key already has, refused, or left waiting.

In: the state of its conversation and the message. Out: an Answer, or None while it must wait. Pure, so the same
message in the same state is answered the same by a replay and by a zombie.
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
from schemas.reply_records import Accepted, Redirected, Rejected
from schemas.tokenizer import ChatTokenizer
from streams.branches import Elsewhere, is_unknown, turns_before
from streams.context import Branch, Prompt, TooLong, build, build_whole

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
    """What intake says to a message; with Accepted come the request and, if it is stored, the branch with the question
    in it, and the question as the user's turn unless it was there before.
    """

    message: MessagePosted
    record: Accepted | Redirected | Rejected
    request: GenerateRequested | None = None
    turn: TurnSaved | None = None
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
    models: Mapping[str, Model], kept: ConversationKept, parked: ParkedMessage, now_ms: int
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
    model = models.get(message.model)
    if model is None:
        served = ", ".join(sorted(models))
        return Answer(message, Rejected("model_not_found", f"model {message.model!r} is not served here: {served} is"))
    if kept.open_reply is not None and stored:
        waited = now_ms - parked.since_ms
        return None if waited < BUSY_PATIENCE_MS else Answer(message, busy(kept))
    if not stored:
        return _accepted(model, parked, build_whole(model.tokenizer, message.messages, message.sampling.max_tokens))
    asked = _asked(kept, message)
    if not isinstance(asked, Asked):
        return asked
    prompt = build(model.tokenizer, asked.branch, asked.question, message.sampling.max_tokens)
    return _accepted(model, parked, prompt, asked)


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


def _accepted(model: Model, parked: ParkedMessage, prompt: Prompt | TooLong, asked: Asked | None = None) -> Answer:
    message = parked.message
    if isinstance(prompt, TooLong):
        return Answer(message, Rejected("context_length_exceeded", f"{prompt} (model {message.model!r})"))
    tier = TIER_OF_PLAN.get(message.plan, "free")
    deadline_ms = parked.since_ms + message.deadline_ms
    accepted = Accepted(
        user=message.user,
        account=message.account,
        plan=message.plan,
        conversation=message.conversation,
        user_message=asked.question.message if asked else user_message_id(message.reply),
        assistant_message=assistant_message_id(message.reply),
        stored=asked is not None,
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
        client_key=message.client_key if asked and asked.again else None,
        body_hash=message.body_hash if asked and asked.again else None,
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
    if asked is None:
        return Answer(message, accepted, request)
    if asked.again:
        return Answer(message, accepted, request, turns=(*asked.branch.turns, asked.question))
    ids, tokenizer = pack_ids(prompt.message_ids), model.tokenizer.fingerprint
    question = replace(asked.question, token_ids=ids, tokenizer=tokenizer, begins=prompt.begins)
    return Answer(message, accepted, request, _user_turn(parked, question), (*asked.branch.turns, question))


def _user_turn(parked: ParkedMessage, question: Turn) -> TurnSaved:
    message = parked.message
    return TurnSaved(
        user=message.user,
        conversation=message.conversation,
        turn=question,
        reply=message.reply,
        model=message.model,
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
    detail = f"conversation {kept.conversation!r} still waits for {kept.open_reply or 'its history'}"
    return Rejected("conversation_busy", detail, BUSY_PATIENCE_MS, kept.open_reply)
