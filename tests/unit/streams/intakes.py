"""Intake by hand: messages in, answers out, and its state through the changelog's bytes and back.

`Script` lays a log down as one is in production: the store knows what was accepted, replies that were accepted settle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from schemas.codec import Codec
from schemas.events import (
    ClientKey,
    ConversationDeleted,
    ConversationRenamed,
    HistoryLoaded,
    MessagePosted,
    ReplySettled,
    Tick,
    Turn,
    TurnSaved,
)
from schemas.ids import ConversationId, ReplyId, UserId
from schemas.quota_records import Limit, LimitSet, Plan, PlansLoaded, UsageAsked
from schemas.reply_records import Accepted
from schemas.tokenizer import ChatTokenizer
from streams.admission import Model
from streams.intake import Intake
from streams.stage import Decision, Message
from tests.unit.streams.staged import ROUTES, SIZES, T0, Driven, answers, events, posted, reply_id, turn
from topics.catalog import MESSAGES
from topics.log import Place
from topics.outputs import Output, Routes

PLACE = Place(MESSAGES, 0)
CODEC = Codec()

Key = tuple[UserId, ConversationId]
Changelog = dict[str, bytes | None]
Written = tuple[Place, str, bytes]


def intake(tokenizer: ChatTokenizer, *, mini: bool = False) -> Intake:
    """With `mini` a second model of that name, in a pool of that name."""
    models = {"tiny": Model(tokenizer, "main")}
    if not mini:
        return Intake(models, ROUTES)
    return Intake(models | {"mini": Model(tokenizer, "mini")}, Routes(replace(SIZES, pools=("main", "mini"))))


def loaded(user: str = "alice", conversation: str = "c", *turns: Turn, keys: Iterable[ClientKey] = ()) -> HistoryLoaded:
    return HistoryLoaded(UserId(user), ConversationId(conversation), True, turns, tuple(keys))


def unavailable(user: str = "alice", conversation: str = "c") -> HistoryLoaded:
    return HistoryLoaded(UserId(user), ConversationId(conversation), False, (), ())


def settled(message: MessagePosted, said: Turn | None = None) -> ReplySettled:
    return ReplySettled(message.user, message.conversation, message.reply, "finished", 5, 0, 1, said)


class Intakes(Driven):
    """An intake and its one partition."""

    def __init__(self, tokenizer: ChatTokenizer, *, mini: bool = False) -> None:
        super().__init__(intake(tokenizer, mini=mini), PLACE)

    def take(self, event: object, at_ms: int = T0) -> Decision:
        return self(PLACE, event, at_ms)

    def told(self, event: object, at_ms: int = T0) -> dict[ReplyId, object]:
        return answers(self.take(event, at_ms))

    def ready(self, user: str = "alice", conversation: str = "c") -> None:
        """Makes the conversation known, without a turn."""
        self.take(posted(0, "first", user, conversation, model="not served"))
        self.take(loaded(user, conversation))


def encoded(decision: Decision) -> list[Written]:
    return [(o.place, o.key, CODEC.encode(o.event)) for o in (*decision.first, *decision.then)]


def keep(changelog: Changelog, changes: Iterable[Output]) -> None:
    """Takes changes into a compacted changelog."""
    for output in changes:
        changelog[output.key] = None if output.event is None else CODEC.encode(output.event)


def restored(tokenizer: ChatTokenizer, changelog: Changelog) -> Intake:
    stage = intake(tokenizer)
    stage.assigned(PLACE, None)
    for key, value in changelog.items():
        stage.restore(PLACE, key.encode(), None if value is None else CODEC.decode(value))
    stage.restored(PLACE)
    return stage


@dataclass
class Script:
    """Lays the log down action by action while a first intake reads it."""

    tokenizer: ChatTokenizer
    now: int = T0
    accepted: list[MessagePosted] = field(default_factory=list)
    turns: list[TurnSaved] = field(default_factory=list)
    posted: dict[str, MessagePosted] = field(default_factory=dict)
    outputs: list[list[Written]] = field(default_factory=list)
    log: list[Message] = field(default_factory=list)

    def run(self, actions: Sequence[tuple[int, str, int, int]]) -> None:
        """(time that passes, what happens, to which conversation, which of its texts or replies)"""
        stage = restored(self.tokenizer, {})
        for elapsed, action, where, which in actions:
            self.now += elapsed
            event = self._event(action, where, which)
            message = Message(PLACE, len(self.log), self.now, b"", event)
            self.log.append(message)
            self._see(stage.apply(message))

    def _event(self, action: str, where: int, which: int) -> object:
        user, conversation = (("alice", "c"), ("bob", "c"), ("alice", "d"))[where]
        if action == "post":
            text = "abc"[which]
            message = posted(len(self.log), text, user, conversation, client_key=f"key-{which % 2}")
            self.posted[message.reply] = message
            return message
        if action == "settle" and self.accepted:
            message = self.accepted[which % len(self.accepted)]
            return settled(message, turn("assistant", (70, 71), self.tokenizer.fingerprint, "FG"))
        if action == "load":
            return self._history(user, conversation) if which else unavailable(user, conversation)
        if action == "rename":
            return ConversationRenamed(UserId(user), ConversationId(conversation), f"name {len(self.log)}")
        if action == "plans":
            limits = (
                Limit("*", "tokens", 60, "15m"),
                Limit("*", "replies", 2),
                Limit("*", "requests", 5, "day"),
            )
            return PlansLoaded(
                (Plan("paid", "paid", limits[which:], default_max_tokens=20, time_zone="Europe/Berlin"),)
            )
        if action == "limit":
            return LimitSet(UserId(user), (Limit("*", "requests", which, "5h"),) * min(which, 1))
        if action == "usage":
            return UsageAsked(UserId(user), reply_id(10_000 + len(self.log)))
        if action == "delete":
            return ConversationDeleted(UserId(user), ConversationId(conversation))
        return Tick()

    def _history(self, user: str, conversation: str) -> HistoryLoaded:
        saved = [s for s in self.turns if (s.user, s.conversation) == (user, conversation)]
        keys = [ClientKey(s.client_key or "", s.body_hash or "", s.reply) for s in saved]
        return loaded(user, conversation, *(s.turn for s in saved), keys=keys)

    def _see(self, decision: Decision) -> None:
        self.outputs.append(encoded(decision))
        for deleted in events(decision.then, ConversationDeleted):
            self.turns = [s for s in self.turns if (s.user, s.conversation) != (deleted.user, deleted.conversation)]
        self.turns += events(decision.then, TurnSaved)
        for reply, record in answers(decision).items():
            if isinstance(record, Accepted):
                self.accepted.append(self.posted[reply])
