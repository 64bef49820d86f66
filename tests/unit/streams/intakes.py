"""Intake by hand: messages in, answers out, and its state through the changelog's bytes and back.

`Script` lays a log down as one is in production: the store knows what was accepted, replies that were accepted settle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
    pack_ids,
)
from schemas.ids import ConversationId, MessageId, ReplyId, UserId
from schemas.quota_records import Limit, LimitSet, Plan, PlansLoaded, UsageAsked
from schemas.reply_records import Accepted
from schemas.tokenizer import ChatTokenizer
from streams.active import MOST_HELD_BYTES
from streams.admission import Model
from streams.intake import Intake
from streams.stage import Decision, HistoryWanted, Message
from tests.unit.streams.staged import ROUTES, SIZES, T0, Driven, answers, events, posted, reply_id
from topics.catalog import MESSAGES
from topics.log import Place
from topics.outputs import Output, Routes

PLACE = Place(MESSAGES, 0)
CODEC = Codec()

Key = tuple[UserId, ConversationId]
Changelog = dict[str, bytes | None]
Written = tuple[Place, str, bytes]


def intake(tokenizer: ChatTokenizer, room: int = MOST_HELD_BYTES, *, mini: bool = False) -> Intake:
    """With `mini` a second model of that name, in a pool of that name."""
    models = {"tiny": Model(tokenizer, "main")}
    if not mini:
        return Intake(models, ROUTES, room)
    routes = Routes(replace(SIZES, pools=("main", "mini")))
    return Intake(models | {"mini": Model(tokenizer, "mini")}, routes, room)


def loaded(
    user: str = "alice", conversation: str = "c", *turns: Turn, keys: Iterable[ClientKey] = (), **fields: Any
) -> HistoryLoaded:
    return HistoryLoaded(UserId(user), ConversationId(conversation), True, turns, tuple(keys), **fields)


def unavailable(user: str = "alice", conversation: str = "c", leaf: MessageId | None = None) -> HistoryLoaded:
    return HistoryLoaded(UserId(user), ConversationId(conversation), False, (), (), leaf)


def settled(message: MessagePosted, said: Turn | None = None) -> ReplySettled:
    return ReplySettled(message.user, message.conversation, message.reply, "finished", 5, 0, 1, said)


def answered(
    tokenizer: ChatTokenizer, message: MessagePosted, accepted: Accepted, said: str, status: str = "complete"
) -> ReplySettled:
    """The end of a reply that says this."""
    ids, name = pack_ids(tokenizer.encode(said)), tokenizer.fingerprint
    turn = Turn(accepted.assistant_message, accepted.user_message, "assistant", said, ids, name, status)
    return settled(message, turn)


class Intakes(Driven):
    """An intake and its one partition."""

    def __init__(self, tokenizer: ChatTokenizer, room: int = MOST_HELD_BYTES, *, mini: bool = False) -> None:
        super().__init__(intake(tokenizer, room, mini=mini), PLACE)
        self.tokenizer = tokenizer

    def take(self, event: object, at_ms: int = T0) -> Decision:
        """What the store held answers the newest question, unless it says which."""
        if isinstance(event, HistoryLoaded) and not event.deleted_ms:
            kept = self.stage._partitions[PLACE].kept.get((event.user, event.conversation))
            event = replace(event, deleted_ms=kept.deleted_ms if kept else 0)
        return self(PLACE, event, at_ms)

    def told(self, event: object, at_ms: int = T0) -> dict[ReplyId, object]:
        return answers(self.take(event, at_ms))

    def ready(self, user: str = "alice", conversation: str = "c") -> None:
        """Makes the conversation known, without a turn."""
        self.take(posted(0, "first", user, conversation, model="not served"))
        self.take(loaded(user, conversation))

    def exchange(self, message: MessagePosted, said: str = "answer", **fields: Any) -> Decision:
        """A message that is accepted at once, and its answer; what the message led to."""
        decision = self.take(message, **fields)
        [accepted] = [record for record in answers(decision).values() if isinstance(record, Accepted)]
        self.take(answered(self.tokenizer, message, accepted, said), **fields)
        return decision


def encoded(decision: Decision) -> list[Written]:
    return [(o.place, o.key, CODEC.encode(o.event)) for o in (*decision.first, *decision.then)]


def keep(changelog: Changelog, changes: Iterable[Output]) -> None:
    """Takes changes into a compacted changelog."""
    for output in changes:
        changelog[output.key] = None if output.event is None else CODEC.encode(output.event)


def restored(tokenizer: ChatTokenizer, changelog: Changelog, room: int = MOST_HELD_BYTES) -> Intake:
    stage = intake(tokenizer, room)
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
    room: int = MOST_HELD_BYTES
    accepted: list[tuple[MessagePosted, Accepted]] = field(default_factory=list)
    turns: list[TurnSaved] = field(default_factory=list)
    wanted: dict[Key, HistoryWanted] = field(default_factory=dict)
    posted: dict[str, MessagePosted] = field(default_factory=dict)
    outputs: list[list[Written]] = field(default_factory=list)
    log: list[Message] = field(default_factory=list)

    def run(self, actions: Sequence[tuple[int, str, int, int]]) -> None:
        """(time that passes, what happens, to which conversation, which of its texts or replies)"""
        stage = restored(self.tokenizer, {}, self.room)
        for elapsed, action, where, which in actions:
            self.now += elapsed
            event = self._event(action, where, which)
            message = Message(PLACE, len(self.log), self.now, b"", event)
            self.log.append(message)
            self._see(stage.apply(message))

    def _event(self, action: str, where: int, which: int) -> object:
        user, conversation = (("alice", "c"), ("bob", "c"), ("alice", "d"))[where]
        if action == "post":
            return self._post(user, conversation, f"key-{which % 2}", text="abc"[which])
        if action in ("branch", "again"):
            there = [s.turn.message for s in self.turns if (s.user, s.conversation) == (user, conversation)]
            parent = [*there, MessageId("nowhere")][-which * 2 - 1 :][0]
            return self._post(user, conversation, text="d" if action == "branch" else "", parent=parent)
        if action == "settle" and self.accepted:
            message, accepted = self.accepted[which % len(self.accepted)]
            end = answered(self.tokenizer, message, accepted, "FG", ("complete", "stopped", "flagged")[which])
            self._save(message, accepted, end)
            return end
        if action == "load":
            return self.history(user, conversation, available=bool(which))
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

    def history(self, user: str, conversation: str, *, available: bool = True) -> HistoryLoaded:
        asked = self.wanted.get((UserId(user), ConversationId(conversation)))
        leaf, deleted_ms = (asked.leaf, asked.deleted_ms) if asked else (None, 0)
        if not available:
            return replace(unavailable(user, conversation), deleted_ms=deleted_ms)
        saved = [s for s in self.turns if (s.user, s.conversation) == (user, conversation)]
        keys = [ClientKey(s.client_key, s.body_hash or "", s.reply) for s in saved if s.client_key]
        turns = {s.turn.message: s.turn for s in saved}
        path: list[Turn] = []
        at = leaf or next(reversed(turns), None)
        while at in turns:
            path.insert(0, turns[at])
            at = turns[at].parent
        return loaded(
            user, conversation, *path, keys=keys, leaf=leaf, found=leaf is None or leaf in turns, deleted_ms=deleted_ms
        )

    def _post(self, user: str, conversation: str, key: str = "", text: str = "", **fields: Any) -> MessagePosted:
        n = len(self.log)
        message = posted(n, text, user, conversation, client_key=key or f"own-{n}", **fields)
        self.posted[message.reply] = message
        return message

    def _save(self, message: MessagePosted, accepted: Accepted, end: ReplySettled) -> None:
        if end.turn and all(saved.turn.message != end.turn.message for saved in self.turns):
            key, body_hash = accepted.client_key, accepted.body_hash
            saved = TurnSaved(
                message.user, message.conversation, end.turn, message.reply, "tiny", self.now, key, body_hash
            )
            self.turns.append(saved)

    def _see(self, decision: Decision) -> None:
        self.outputs.append(encoded(decision))
        for deleted in events(decision.then, ConversationDeleted):
            self.turns = [s for s in self.turns if (s.user, s.conversation) != (deleted.user, deleted.conversation)]
        self.turns += events(decision.then, TurnSaved)
        self.wanted |= {
            (wanted.user, wanted.conversation): wanted
            for wanted in decision.wanted
            if isinstance(wanted, HistoryWanted)
        }
        for reply, record in answers(decision).items():
            if isinstance(record, Accepted):
                self.accepted.append((self.posted[reply], record))
