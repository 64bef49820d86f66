"""A stage driven by hand, and short ways to write what it reads.

In: events. Out: decisions, and what they say by topic. One partition of everything, so every key is at home in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from schemas import reply_records as r
from schemas.events import (
    GenerateRequested,
    LanePosition,
    MessagePosted,
    Origin,
    ReplicaBeat,
    Sampling,
    SupervisorBeat,
    Turn,
    pack_ids,
)
from schemas.ids import ConversationId, Incarnation, MessageId, ReplyId, UserId, assistant_message_id, user_message_id
from schemas.prefix import BLOCK_TOKENS
from schemas.reply import Reply
from streams.stage import Decision, Message, Stage
from topics.catalog import HOUR, REPLICAS, REPLIES, TIERS, Sizes
from topics.log import Place, Position
from topics.outputs import Output, Routes

SIZES = Sizes(slots=4, users=1, replies=1)
ROUTES = Routes(SIZES)
T0 = 1_700_000_000_000
REPLY_LOG = Place(REPLIES, 0)
BEATS = Place(REPLICAS, 0)
ONE, TWO = Incarnation("one"), Incarnation("two")
DEADLINE_MS = 60_000


class Driven:
    """Feeds a stage one record after the other; `log` keeps them all, per place."""

    def __init__(self, stage: Stage, *places: Place, committed: Position | None = None) -> None:
        self.stage = stage
        self.log: dict[Place, list[Message]] = {}
        self._next: Counter[Place] = Counter()
        for place in places:
            start = stage.assigned(place, committed)
            self._next[place] = (committed.offset if committed else 0) if start is None else start
            stage.restored(place)
            stage.caught_up(place)

    def __call__(self, place: Place, event: object, at_ms: int = T0, key: str = "") -> Decision:
        message = Message(place, self._next[place], at_ms, key.encode(), event)
        self._next[place] += 1
        self.log.setdefault(place, []).append(message)
        return self.stage.apply(message)

    def reply(self, reply: ReplyId, *records: object, at_ms: int = T0) -> Decision:
        """Records of one reply; all that they lead to."""
        return joined(self(REPLY_LOG, record, at_ms, f"{reply}/w/0") for record in records)

    def beat(self, beat: ReplicaBeat | SupervisorBeat, at_ms: int = T0) -> Decision:
        return self(BEATS, beat, at_ms)


def joined(decisions: Iterable[Decision]) -> Decision:
    parts = list(decisions)
    fields = ("first", "then", "committed", "wanted", "projected")
    return Decision(*(tuple(item for part in parts for item in getattr(part, name)) for name in fields))


def events(outputs: Iterable[Output], kind: type | None = None) -> list[Any]:
    """What is written, or all of it that is of one kind."""
    return [output.event for output in outputs if kind is None or isinstance(output.event, kind)]


def answers(decision: Decision) -> dict[ReplyId, Any]:
    """What each reply is told, by its id; the last word if there are two."""
    return {ReplyId(o.key): o.event for o in decision.first if o.place.topic == REPLIES}


def folded(outputs: Iterable[Output]) -> dict[str, Reply]:
    """Every reply as a reader sees it who reads these outputs in their order."""
    replies: dict[str, Reply] = {}
    for offset, output in enumerate(outputs):
        if output.place.topic == REPLIES:
            replies.setdefault(output.key, Reply(ReplyId(output.key))).apply(offset, output.event)
    return replies


def reply_id(n: int, partition: int = 0) -> ReplyId:
    return ReplyId(f"r00{partition:03x}-{T0:012x}{n:020x}-00000000")


def posted(n: int, text: str = "hi", user: str = "alice", conversation: str = "c", **fields: Any) -> MessagePosted:
    """The n-th candidate; its client key is its own unless one is given."""
    given: dict[str, Any] = {
        "account": "acme",
        "plan": "paid",
        "client_key": f"key-{n}",
        "body_hash": text,
        "model": "tiny",
        "sampling": Sampling(max_tokens=0, seed=7),
        "deadline_ms": DEADLINE_MS,
    }
    return MessagePosted(
        user=UserId(user), conversation=ConversationId(conversation), reply=reply_id(n), text=text, **given | fields
    )


def turn(role: str, ids: Iterable[int], tokenizer: str = "t", text: str = "", message: str = "m") -> Turn:
    return Turn(MessageId(message), None, role, text, pack_ids(ids), tokenizer, "complete")


def accepted(reply: ReplyId, **fields: Any) -> r.Accepted:
    given: dict[str, Any] = {
        "user": UserId("alice"),
        "account": "acme",
        "plan": "paid",
        "conversation": ConversationId("c"),
        "user_message": user_message_id(reply),
        "assistant_message": assistant_message_id(reply),
        "stored": True,
        "model": "tiny",
        "pool": "main",
        "tier": "paid",
        "prompt_tokens": 5,
        "seed": 7,
        "deadline_ms": T0 + DEADLINE_MS,
        "on_disconnect": "continue",
        "checked": False,
        "tokenizer": "t",
    }
    return r.Accepted(**given | fields)


def origin(offset: int = 0) -> Origin:
    return Origin("generate.main.paid", 0, offset)


def dispatched(attempt: int = 1, incarnation: Incarnation = ONE, slot: int = 0) -> r.Dispatched:
    return r.Dispatched(attempt, f"main/{slot}", incarnation, origin())


def started(attempt: int = 1, incarnation: Incarnation = ONE, slot: int = 0) -> r.Started:
    return r.Started(attempt, f"main/{slot}", incarnation, "print", origin(), 3)


def tokens(first: int, text: str, attempt: int = 1, incarnation: Incarnation = ONE) -> r.Tokens:
    """One token for each character of `text`."""
    return r.Tokens(attempt, incarnation, first, pack_ids(map(ord, text)), tuple(text))


def finished(count: int, attempt: int = 1, incarnation: Incarnation = ONE) -> r.Finished:
    return r.Finished(attempt, incarnation, "stop", count)


def request(n: int, tier: str = "paid", pool: str = "main", prompt: str = "") -> GenerateRequested:
    """Each letter of `prompt` is a block of its own."""
    user, conversation = UserId("alice"), ConversationId("c")
    ids = pack_ids(ord(letter) for letter in prompt for _ in range(BLOCK_TOKENS))
    return GenerateRequested(reply_id(n), 1, user, conversation, "tiny", pool, tier, ids, b"", Sampling(9), T0 + HOUR)


def beat(incarnation: Incarnation = ONE, slot: int = 0, **fields: Any) -> ReplicaBeat:
    """`read` is the next offset of every lane."""
    given: dict[str, Any] = {"state": "ready", "capacity": 1, "running": 0, "waiting": 0, "step": 0, "read": 0} | fields
    read = given.pop("read")
    lanes = tuple(LanePosition(tier, read if isinstance(read, int) else read.get(tier, 0)) for tier in TIERS)
    return ReplicaBeat(
        pool="main",
        slot=slot,
        incarnation=incarnation,
        free_blocks=0,
        lanes=lanes,
        p99_step_ms=1.0,
        fingerprint="print",
        **given,
    )
