"""Every record that travels through Laneway's topics, one frozen dataclass each.

Facts are named in the past tense, requests in the imperative or with `Requested`. Times are milliseconds since
1970 (`*_ms`). Token ids travel as little-endian uint32 bytes (`pack_ids`). The Avro schema of each class is made
from its annotations (`schemas/codec.py`) and committed under `schemas/avro/`; a new field needs a default.
The records of `replies` are in `schemas/reply_records.py`, those of the changelogs in `schemas/kept_records.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from schemas.ids import ConversationId, Incarnation, MessageId, ReplyId, UserId

ROOT = MessageId("root")  # the parent of what begins a conversation anew


def pack_ids(ids: Iterable[int]) -> bytes:
    """Token ids as little-endian uint32, 4 bytes each."""
    values = tuple(ids)
    return struct.pack(f"<{len(values)}I", *values)


def unpack_ids(packed: bytes) -> tuple[int, ...]:
    """The token ids in `packed`. Raises ValueError unless its length is a multiple of 4."""
    if len(packed) % 4:
        raise ValueError(f"{len(packed)} bytes are no whole number of uint32 token ids")
    return struct.unpack(f"<{len(packed) // 4}I", packed)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record lies in the log."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn: `temperature` 0 is greedy, `top_k` 0 is off, a posted `max_tokens` 0 is not asked.

    Penalties count over the reply, not over the prompt; `min_tokens` come before an end of sequence, which
    `ignore_eos` makes a token like any other. `top_logprobs` None: no log probabilities are wanted; else those of
    each token and of so many of the likeliest in its place.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    stop: tuple[str, ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    ignore_eos: bool = False
    repetition_penalty: float = 1.0
    top_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation as a prompt needs it: its exact token ids, without the template around them.

    Turns are a tree: `parent` is the message that this one follows, and those of one parent are branches. `begins`, of
    a question: the oldest turn that its prompt still had, None for all of its branch.
    """

    message: MessageId
    parent: MessageId | None
    role: str
    text: str
    token_ids: bytes
    tokenizer: str
    status: str
    begins: MessageId | None = None


@dataclass(frozen=True, slots=True)
class ClientKey:
    """An Idempotency-Key that was used in a conversation, and the reply that won it."""

    key: str
    body_hash: str
    reply: ReplyId


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a prompt that a client gives whole: `role` is `system`, `user` or `assistant`."""

    role: str
    text: str


# messages


@dataclass(frozen=True, slots=True)
class MessagePosted:
    """A user's message as the edge took it. `reply` is only a candidate until intake accepts it.

    Where `messages` are given they are the whole prompt, `text` is empty, and no turn of this reply is stored. Else it
    follows the message `parent`: the newest if None, nothing if ROOT; without a `text` it asks for another answer to
    that question. `system`, if given, is the conversation's system prompt from now on, empty for the model's own.
    """

    user: UserId
    account: str
    plan: str
    conversation: ConversationId
    reply: ReplyId
    client_key: str
    body_hash: str
    text: str
    model: str
    sampling: Sampling
    deadline_ms: int
    on_disconnect: str = "continue"
    messages: tuple[ChatMessage, ...] = ()
    parent: MessageId | None = None
    system: str | None = None


@dataclass(frozen=True, slots=True)
class ConversationRenamed:
    """Its user gave a conversation another title. `at_ms`: as in ConversationDeleted."""

    user: UserId
    conversation: ConversationId
    title: str
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class ConversationDeleted:
    """Its user deleted a conversation; no turn that was asked for before comes back. The id may be used again.

    `at_ms` is given by intake, not by the edge: the log time in `messages`, made later than all of the conversation
    before it and earlier than all after it, so that whoever reads `turns` in any order tells the two apart.
    """

    user: UserId
    conversation: ConversationId
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class ReplySettled:
    """A reply has ended: what it cost and, if it is stored, the turn that it left."""

    user: UserId
    conversation: ConversationId
    reply: ReplyId
    state: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    turn: Turn | None


@dataclass(frozen=True, slots=True)
class HistoryLoaded:
    """What the store held of a conversation when intake asked. `available` False: the store could not be read.

    `turns` are of the branch that ends in `leaf`, None for the newest message; `found` False: there is no such message.
    `deleted_ms`: the deletion that intake had heard of when it asked.
    """

    user: UserId
    conversation: ConversationId
    available: bool
    turns: tuple[Turn, ...]
    keys: tuple[ClientKey, ...]
    leaf: MessageId | None = None
    found: bool = True
    system: str = ""
    deleted_ms: int = 0


@dataclass(frozen=True, slots=True)
class Tick:
    """Log time went on in this partition. Appended only while a message is parked in it."""


# generate, lanes, commands


@dataclass(frozen=True, slots=True)
class GenerateRequested:
    """A reply to be generated: the whole prompt, and for a continuation the tokens accepted so far.

    Only requests of one `account` share cached prefixes.
    """

    reply: ReplyId
    attempt: int
    user: UserId
    conversation: ConversationId
    model: str
    pool: str
    tier: str
    prompt: bytes
    accepted: bytes
    sampling: Sampling
    deadline_ms: int
    account: str = ""


@dataclass(frozen=True, slots=True)
class GenerateAssigned:
    """A request as it lies in a replica's lane, addressed to one incarnation."""

    incarnation: Incarnation
    origin: Origin
    request: GenerateRequested


@dataclass(frozen=True, slots=True)
class AbortReply:
    """Drop the sequence of this attempt: it has ended, or another replica owns it."""

    reply: ReplyId
    attempt: int
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """Take nothing new, finish what runs, leave."""

    incarnation: Incarnation


# replicas, edges


@dataclass(frozen=True, slots=True)
class LanePosition:
    """The next offset that a replica will read in the lane of `tier`."""

    tier: str
    offset: int


@dataclass(frozen=True, slots=True)
class AttemptDropped:
    """An attempt that its replica gave up without an end."""

    reply: ReplyId
    attempt: int


@dataclass(frozen=True, slots=True)
class ReplicaBeat:
    """A replica's heartbeat. `state` is `ready` or `draining`; `capacity` counts sequences that may run at once."""

    pool: str
    slot: int
    incarnation: Incarnation
    state: str
    capacity: int
    running: int
    waiting: int
    free_blocks: int
    lanes: tuple[LanePosition, ...]
    step: int
    p99_step_ms: float
    fingerprint: str
    dropped: tuple[AttemptDropped, ...] = ()


@dataclass(frozen=True, slots=True)
class SupervisorBeat:
    """The supervisor's own clock: one is sent 500 ms after the last was read back."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class EdgeBeat:
    incarnation: Incarnation
    streams: int


# turns, usage


@dataclass(frozen=True, slots=True)
class TurnSaved:
    """One message of a conversation for the store; the same message again is the same turn.

    `posted_ms`, the time of the user's message in `messages`, is the same for question and answer: a deletion at that
    time or later erases both, whenever they are read. A key is kept with the question, or with the answer if that has
    no question of its own; so is the `system` prompt that the conversation has from this message on.
    """

    user: UserId
    conversation: ConversationId
    turn: Turn
    reply: ReplyId
    model: str
    created_ms: int
    client_key: str | None = None
    body_hash: str | None = None
    reason: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    posted_ms: int = 0
    system: str | None = None


@dataclass(frozen=True, slots=True)
class UsageRecorded:
    """What one accepted reply used: exactly one per reply. Counts are tokens.

    `fingerprints` are those of all replicas that wrote it, `fingerprint` that of the last: more than one means that
    it was continued by a replica that another model, or another machine, makes answer otherwise.
    """

    reply: ReplyId
    user: UserId
    account: str
    plan: str
    conversation: ConversationId
    model: str
    pool: str
    tier: str
    state: str
    reason: str | None
    attempts: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    accepted_ms: int
    ended_ms: int
    fingerprint: str | None
    fingerprints: tuple[str, ...] = ()


# schemas, dead-letters


@dataclass(frozen=True, slots=True)
class SchemaPublished:
    """An Avro schema, as a writer published it before its first use."""

    fingerprint: bytes
    schema: str


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """A record that a stage could not decode or decide: its bytes, the error and where it came from."""

    origin: Origin
    stage: str
    error: str
    key: bytes | None
    value: bytes | None
