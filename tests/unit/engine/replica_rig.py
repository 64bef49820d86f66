"""A replica on the in-memory log, driven by hand: requests and commands in, the records of its replies out.

Its runner says the last message again, unless another is given.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from engine.beats import Beats
from engine.engine import Engine
from engine.lanes import Lanes
from engine.replica import Identity, Outbox, Replica
from engine.runner import Runner
from engine.scheduler import Limits
from engine.scripted import ScriptedRunner
from engine.sequence import Sequence
from engine.succession import Watch
from schemas import reply_records as r
from schemas.codec import Codec
from schemas.events import GenerateAssigned, GenerateRequested, Origin, ReplicaBeat, Sampling, SupervisorBeat, pack_ids
from schemas.ids import ConversationId, Incarnation, ReplyId, UserId, assistant_message_id, user_message_id
from schemas.reply import Reply
from schemas.tokenizer import ChatTokenizer, PromptTurn
from topics.catalog import REPLIES, TIERS, Sizes, catalog, lane_topic
from topics.log import Place
from topics.memory import MemoryLog
from topics.outputs import Encoder, Output, Routes, reply_of_key
from topics.schemas import Decoder

SIZES = Sizes(slots=2, users=1, replies=1)
ROUTES = Routes(SIZES)
CODEC = Codec()
ONE = Incarnation("one")
ORIGIN = Origin("generate.main.paid", 0, 7)


class Rig:
    """One slot with its log. `assign` is the router's, `tell` the supervisor's."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        capacity: int = 2,
        blocks: int = 200,
        recomputations: int = 8,
        runner: Runner | None = None,
    ) -> None:
        self.tokenizer, self.writers, self.runner = tokenizer, count(), runner
        self.blocks, self.recomputations = blocks, recomputations
        self.log = MemoryLog({topic.name: topic.partitions for topic in catalog(SIZES)}, lambda: 0)
        self.seen_positions: list[list[int]] = []
        self.others = self.outbox()
        self.replica = self.start(ONE, capacity)

    def outbox(self) -> Outbox:
        encoder = Encoder(CODEC, SIZES, Incarnation(f"writer-{next(self.writers)}"))
        return Outbox(self.log.producer(), encoder, ROUTES)

    def start(self, incarnation: Incarnation, capacity: int = 2) -> Replica:
        def note(sequences: list[Sequence]) -> None:
            self.seen_positions.append([sequence.position for sequence in sequences])

        runner = self.runner or ScriptedRunner(self.tokenizer, before_step=note, num_blocks=self.blocks)
        engine = Engine(
            runner, Limits(max_running=capacity, reserve=0, recomputations=self.recomputations), clock=lambda: 0.0
        )
        lanes = Lanes(self.log, Decoder(self.log, CODEC), "main", 0)
        return Replica(Identity("main", 0, incarnation), engine, self.tokenizer, lanes, self.outbox())

    def beats(self, failed: Callable[[BaseException], None] = print) -> Beats:
        return Beats(
            self.replica, Watch(self.log, Decoder(self.log, CODEC), self.replica.identity), self.outbox(), failed
        )

    def beat(self, event: ReplicaBeat | SupervisorBeat) -> None:
        """Somebody else's heartbeat."""
        self.write(ROUTES.replica_beat("whoever", event))

    def write(self, *outputs: Output) -> None:
        for output in outputs:
            self.others.producer.send(self.others.encoder.append(output))

    def assign(self, n: int, text: str = "hey", tier: str = "paid", **fields: Any) -> ReplyId:
        prompt = pack_ids(self.tokenizer.prompt([PromptTurn("user", self.tokenizer.encode(text))]))
        given: dict[str, Any] = {
            "tier": tier,
            "attempt": 1,
            "accepted": b"",
            "sampling": Sampling(50),
            "prompt": prompt,
        } | fields
        incarnation, origin = given.pop("incarnation", ONE), given.pop("origin", ORIGIN)
        user, conversation = UserId("alice"), ConversationId("c")
        request = GenerateRequested(
            ReplyId(given.pop("as_reply", reply_id(n))),
            user=user,
            conversation=conversation,
            model="tiny",
            pool="main",
            deadline_ms=0,
            **given,
        )
        lane = Place(lane_topic("main", tier if tier in TIERS else "paid"), 0)
        self.write(Output(lane, request.reply, GenerateAssigned(incarnation, origin, request)))
        return reply_id(n)

    def tell(self, command: object) -> None:
        self.write(ROUTES.command("main", 0, command))

    def run(self, steps: int = 1) -> None:
        for _ in range(steps):
            self.replica.step()

    def run_out(self) -> None:
        """Until nothing runs any more."""
        self.run()
        while not self.replica.idle:
            self.run()

    def events(self, topic: str) -> list[tuple[ReplyId | None, Any]]:
        reader = self.log.reader()
        reader.add(Place(topic, 0), 0)
        return [(reply_of_key(record.key), CODEC.decode(record.value)) for record in reader.poll(10_000, 0)]

    def of(self, n: int) -> list[Any]:
        return [event for reply, event in self.events(REPLIES) if reply == reply_id(n)]

    def kinds(self, n: int) -> list[type]:
        return [type(event) for event in self.of(n)]


def reply_id(n: int) -> ReplyId:
    return ReplyId(f"r00000-{n:032x}-00000000")


def other_beat(incarnation: str, slot: int = 0, pool: str = "main") -> ReplicaBeat:
    return ReplicaBeat(pool, slot, Incarnation(incarnation), "ready", 1, 0, 0, 0, (), 0, 0.0, "f")


def accepted(reply: ReplyId) -> r.Accepted:
    messages = user_message_id(reply), assistant_message_id(reply)
    who = UserId("alice"), "acme", "paid", ConversationId("c")
    return r.Accepted(*who, *messages, True, "tiny", "main", "paid", 1, 0, 0, "continue", False, "t")


def folded(n: int, *records: Any) -> Reply:
    reply = Reply(reply_id(n))
    for offset, record in enumerate([accepted(reply.id), *records]):
        reply.apply(offset, record)
    return reply
