"""The conversation store as its callers see it: what `turns` says, indexed for prompts, lists and expired replies.

In: records of `turns` with their offsets. Out: values. The same records saved again, in any order, from any offset on,
give the same content: a deletion erases what was posted at its time or earlier, before it comes and after it. What is
unknown is an empty answer; a store that cannot answer raises Unavailable. `tests/contract/test_store.py` is what an
implementation must pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from schemas.events import ClientKey, ConversationDeleted, ConversationRenamed, Turn, TurnSaved
from schemas.ids import ConversationId, MessageId, ReplyId, UserId

TITLE_CHARACTERS = 80
LONGEST_KEY_BYTES = 512
LATEST_MS = 2**53
SAVED_BY = "history"  # the group that reads `turns`, and commits what is in the store for good

Saved: TypeAlias = TurnSaved | ConversationRenamed | ConversationDeleted


@dataclass(frozen=True, slots=True)
class SavedAt:
    """A record and its offset in `turns`. One partition holds all records of a user, so offsets order them."""

    offset: int
    saved: Saved


@dataclass(frozen=True, slots=True)
class History:
    """What intake needs of a conversation: a branch's newest turns, oldest first, the client keys used in all of it,
    its system prompt, and whether the message that ends the branch is there.
    """

    turns: tuple[Turn, ...]
    keys: tuple[ClientKey, ...]
    system: str = ""
    found: bool = True


class Cursor(NamedTuple):
    """A place in a user's list of conversations."""

    updated_ms: int
    conversation: ConversationId


@dataclass(frozen=True, slots=True)
class Conversation:
    """A line of that list. `count` counts messages; `title` is what its user called it, else `title_of` the first."""

    id: ConversationId
    created_ms: int
    updated_ms: int
    count: int
    title: str

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.updated_ms, self.id)


class Store(Protocol):
    """Calls wait for the disk or the network: make them in a thread. All threads of a process may share a store.

    The turns of a conversation are ordered by when their question was posted, then by reply; the user's before the
    assistant's. All versions of a message were posted at one time, for one reply. They are a tree by their parents: the
    branch that ends in a message is that message, its parent, and so on, as far as they are there. Who names a later
    message as a parent, or itself in the end, breaks a branch off somewhere.
    """

    def save(self, records: Iterable[SavedAt]) -> None:
        """Durable on return; who is told Unavailable instead saves the same again. Of two versions of a message, that
        of the higher offset stays; of two names of a conversation, the later one. What was posted longer ago than
        the store keeps is passed over, and goes by itself in time."""

    def identity(self) -> str:
        """A name that no other store has, given when this one was made: what was saved is told beside it."""

    def history(
        self,
        user: UserId,
        conversation: ConversationId,
        limit_tokens: int,
        keys_since_ms: int = 0,
        leaf: MessageId | None = None,
    ) -> History:
        """The newest turns of the branch that ends in `leaf`, None for the newest message, whose token ids together
        are at most `limit_tokens`; every key posted since then."""

    def path(
        self, user: UserId, conversation: ConversationId, limit: int, leaf: MessageId | None = None
    ) -> tuple[TurnSaved, ...]:
        """The last `limit` messages of the branch that ends in `leaf`, or in the newest message; oldest first."""

    def tip(self, user: UserId, conversation: ConversationId, through: MessageId) -> MessageId | None:
        """Where the branch ends that goes through this message and on to the newest child each time; None: unknown."""

    def children(
        self, user: UserId, conversation: ConversationId, parents: Iterable[MessageId | None]
    ) -> dict[MessageId | None, tuple[MessageId, ...]]:
        """The messages that follow each of these, oldest first; None asks for those that follow nothing."""

    def system(self, user: UserId, conversation: ConversationId) -> str:
        """The system prompt that was given last; empty: the model's own."""

    def conversations(self, user: UserId, limit: int, before: Cursor | None = None) -> tuple[Conversation, ...]:
        """The newest first, from after `before` on."""

    def conversation(self, user: UserId, conversation: ConversationId) -> Conversation | None:
        """Its line in the list; None if it is not there."""

    def deleted_ms(self, user: UserId, conversation: ConversationId) -> int:
        """When the conversation was last deleted, in log time; 0 if it never was."""

    def messages(
        self, user: UserId, conversation: ConversationId, limit: int, before: MessageId | None = None
    ) -> tuple[TurnSaved, ...]:
        """The last `limit` messages, or the last before `before`; oldest first."""

    def has_message(self, user: UserId, conversation: ConversationId, message: MessageId) -> bool: ...

    def turns_of_reply(self, user: UserId, reply: ReplyId) -> tuple[TurnSaved, ...]:
        """The user's turn and the assistant's, as far as they are saved."""

    def reply_for_key(self, user: UserId, conversation: ConversationId, client_key: str) -> ClientKey | None:
        """The reply that won this Idempotency-Key, with the hash of the body it came with."""

    def close(self) -> None: ...


def check_savable(saved: Saved) -> None:
    """Raises ValueError for what no store can have as a key: nobody is to wait for a record that never fits."""
    names: dict[str, str] = {"user": saved.user, "conversation": saved.conversation}
    optional: dict[str, str] = {}
    times = {"at_ms": 0 if isinstance(saved, TurnSaved) else saved.at_ms}
    if isinstance(saved, TurnSaved):
        names |= {"message": saved.turn.message, "role": saved.turn.role, "reply": saved.reply}
        optional = {"client_key": saved.client_key or "", "body_hash": saved.body_hash or ""}
        times |= {"created_ms": saved.created_ms, "posted_ms": saved.posted_ms}
    for field, name in (names | optional).items():
        if (length := len(name.encode())) > LONGEST_KEY_BYTES or (field in names and not name):
            raise ValueError(f"{field} has {length} bytes, expected 1 to {LONGEST_KEY_BYTES}")
    for field, at_ms in times.items():
        if not 0 <= at_ms < LATEST_MS:
            raise ValueError(f"{field}={at_ms}: expected milliseconds since 1970")


def posted_ms(saved: TurnSaved) -> int:
    """When the question was posted; of turns from before that was recorded, when they were made."""
    return saved.posted_ms or saved.created_ms


def title_of(text: str) -> str:
    """The beginning of a text in one line: cut after a word, unless that would leave little of it."""
    line = " ".join(text.split(None, TITLE_CHARACTERS))
    if len(line) <= TITLE_CHARACTERS:
        return line
    whole, _, _ = line[:TITLE_CHARACTERS].rpartition(" ")
    return f"{whole if len(whole) > TITLE_CHARACTERS // 2 else line[: TITLE_CHARACTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
