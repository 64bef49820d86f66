"""The records of the reply log, one frozen dataclass each. What they mean is in `schemas/reply.py`.

They carry no reply id: it is the first part of the record's key, `reply/writer/sequence`. `attempt` counts from 1,
`incarnation` is the replica process that wrote the record or is addressed by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.events import Origin
from schemas.ids import ConversationId, Incarnation, MessageId, ReplyId, UserId
from schemas.quota_records import Balance


@dataclass(frozen=True, slots=True)
class Accepted:
    """`max_tokens` is what the reply may have at most, as far as the context has room for what was asked.

    `posted_ms` is the log time of its message in `messages`. `asked_model` is named where a quota made another model
    answer; `quota` has the limits that come next, of requests and of tokens, this reply's reservation in them. The key
    and the system prompt that came with the wish for another answer are here, since no question is saved with them.
    """

    user: UserId
    account: str
    plan: str
    conversation: ConversationId
    user_message: MessageId
    assistant_message: MessageId
    stored: bool
    model: str
    pool: str
    tier: str
    prompt_tokens: int
    seed: int
    deadline_ms: int
    on_disconnect: str
    checked: bool
    tokenizer: str
    max_tokens: int = 0
    posted_ms: int = 0
    asked_model: str = ""
    quota: tuple[Balance, ...] = ()
    client_key: str | None = None
    body_hash: str | None = None
    system: str | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    reason: str
    detail: str = ""
    retry_after_ms: int | None = None
    reply: ReplyId | None = None
    quota: tuple[Balance, ...] = ()


@dataclass(frozen=True, slots=True)
class Redirected:
    to: ReplyId


@dataclass(frozen=True, slots=True)
class UsageTold:
    """The answer to UsageAsked: no reply, but every limit of a user as it stands; and the `models` that are served,
    which old records do not tell.
    """

    user: UserId
    plan: str
    time_zone: str
    balances: tuple[Balance, ...]
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dispatched:
    attempt: int
    replica: str
    incarnation: Incarnation
    request: Origin


@dataclass(frozen=True, slots=True)
class Started:
    attempt: int
    replica: str
    incarnation: Incarnation
    fingerprint: str
    request: Origin
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class LikelyToken:
    """A token's bytes and the natural logarithm of its probability, before penalties and temperature."""

    token: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely a token of the reply was, and the likeliest in its place, the likeliest first."""

    token: bytes
    logprob: float
    top: tuple[LikelyToken, ...]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Consecutive tokens; `first` is the number of the first, from 1; one text per id, empty while it is held back.

    `logprobs` has one entry per token where the request asked for them, else none.
    """

    attempt: int
    incarnation: Incarnation
    first: int
    ids: bytes
    texts: tuple[str, ...]
    logprobs: tuple[TokenLogprob, ...] = ()

    def __post_init__(self) -> None:
        if len(self.ids) != 4 * len(self.texts) or not self.texts or self.first < 1:
            raise ValueError(f"Tokens(first={self.first}) has {len(self.ids)} id bytes for {len(self.texts)} texts")
        if len(self.logprobs) not in (0, len(self.texts)):
            raise ValueError(
                f"Tokens(first={self.first}) has {len(self.logprobs)} logprobs for {len(self.texts)} texts"
            )


@dataclass(frozen=True, slots=True)
class Preempted:
    attempt: int
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class AttemptOpened:
    attempt: int


@dataclass(frozen=True, slots=True)
class Cleared:
    upto: int


@dataclass(frozen=True, slots=True)
class Flagged:
    upto: int
    category: str


@dataclass(frozen=True, slots=True)
class Finished:
    attempt: int
    incarnation: Incarnation
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """`by` is `user`, or `abandoned`, which is void if a listener came after the offset `seen`."""

    by: str
    seen: int | None = None


@dataclass(frozen=True, slots=True)
class Shed:
    reason: str
    retry_after_ms: int


@dataclass(frozen=True, slots=True)
class Failed:
    reason: str


@dataclass(frozen=True, slots=True)
class ListenerAttached:
    edge: str
    stream: str


@dataclass(frozen=True, slots=True)
class ListenerDetached:
    edge: str
    stream: str
