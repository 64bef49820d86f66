"""One run: a plan in, what came of it out. It ends by healing everything, running until quiet, and the checker.

After the healing one more message is asked: a cell that lost nothing but answers nobody has not healed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from schemas.events import SupervisorBeat
from schemas.ids import ConversationId, UserId, created_ms
from schemas.tokenizer import ChatTokenizer
from streams.active import KEPT_IDLE_MS
from streams.supervisor import CANCEL_AFTER_S, MOST_ATTEMPTS
from tests.checker.history import Asked, History, Undisturbed, Waits, read_entries, read_records
from tests.checker.rules import check
from tests.checker.telling import tell
from tests.checker.violation import Violation
from tests.simulation.cell import ReplicaProcess, StageProcess
from tests.simulation.clients import Ask, Client
from tests.simulation.edge import EdgeProcess
from tests.simulation.faults import happen
from tests.simulation.plan import EDGE_ROLES, REPLICA_ROLES, STAGES, Change, Plan
from tests.simulation.surroundings import CODEC, Surroundings
from tests.simulation.undisturbed import undisturbed
from tests.simulation.world import World
from topics.catalog import REPLICAS, REPLIES
from topics.log import Place
from topics.schemas import Decoder

QUIET_MS = 1_500
LONGEST_QUIET_MS = 12_000
PATIENCE_MS = 60_000
EVERY_PATIENCE_MS = 5_000
REPAIR_MS = 8_000
SILENT_MS = 2_500
GRACE_MS = 12_000


@dataclass(frozen=True)
class Outcome:
    """`digest` is of every record and every byte; two runs of one plan have the same."""

    plan: Plan
    violations: tuple[Violation, ...]
    digest: str
    trace: tuple[tuple[int, str, object], ...]
    ends: tuple[str, ...]
    virtual_ms: int


class Run:
    """A cell with its clients, from the first message to the last check."""

    def __init__(self, plan: Plan, tokenizer: ChatTokenizer) -> None:
        self.plan, self.tokenizer = plan, tokenizer
        self.world = World(f"seed {plan.seed}")
        self.around = Surroundings(self.world, tokenizer, plan.sizes)
        for name in STAGES:
            self.around.role(name, partial(StageProcess, self.around)).begin()
        for name in REPLICA_ROLES[: plan.sizes.replicas]:
            self.around.role(name, partial(ReplicaProcess, self.around)).begin()
        edges = [self.around.role(name, partial(EdgeProcess, self.around)) for name in EDGE_ROLES]
        for role in edges:
            role.begin()
        self.clients: list[Client] = []
        self._edges = edges
        self._healed_ms = 0

    def outcome(self) -> Outcome:
        for ask in self.plan.asks:
            self._ask(ask)
        for fault in self.plan.faults:
            self.world.after(fault.at_ms, partial(happen, self.around, fault))
        for change in self.plan.changes:
            self.world.after(change.at_ms, partial(self._change, change))
        self.world.run(self.plan.troubled_ms + 300)
        self._heal()
        violations = self._until_quiet()
        if not violations and self.plan.sizes.comes_back:
            self._come_back()
            violations = self._until_quiet()
        ends = tuple(f"{client.name}: {client.done}" for client in self.clients)
        passed = self.world.now_ms
        return Outcome(self.plan, tuple(violations), self._digest(), tuple(self.world.trace), ends, passed)

    def _ask(self, ask: Ask) -> None:
        names = [ask.name, *(f"{ask.name}.again{n}" for n in range(len(ask.again_ms)))]
        for name, later in zip(names, (0, *ask.again_ms), strict=True):
            client = Client(self.world, name, ask, self._edges)
            self.clients.append(client)
            self.world.after(ask.at_ms + later, client.begin)

    def _change(self, change: Change) -> None:
        up = [role.process for role in self._edges if role.process.alive]
        edges = [process for process in up if process not in self.world.standing]
        if edges and isinstance(edge := edges[0], EdgeProcess):
            self.world.note(edge.name, change)
            edge.guarded(lambda: edge.change(change.event))

    def _come_back(self) -> None:
        """So much later that intake knows everything from the store: all is asked again, and one thing more."""
        self.world.note("world", f"sleeps for {KEPT_IDLE_MS} ms")
        self.world.now_ms += KEPT_IDLE_MS + 1_000
        for ask in self.plan.asks:
            client = Client(self.world, f"{ask.name}.late", replace(ask, gone_ms=None), self._edges)
            self.clients.append(client)
            self.world.after(self.world.random(f"late {ask.name}").randint(0, 2_000), client.begin)
            once_more = replace(ask, name=f"{ask.name}.next", at_ms=3_000, again_ms=(), cuts=(), stop_ms=None)
            self._ask(replace(once_more, gone_ms=None))

    def _heal(self) -> None:
        self.world.note("world", "heals")
        self._healed_ms = self.world.now_ms
        self.world.standing.clear()
        self.around.store.down_until = 0
        for role in self.around.roles.values():
            for process in role.all:
                process.failing.clear()
                process.repeating.clear()
                process.slow_ms = 0
                process._armed.clear()
                if isinstance(process, ReplicaProcess):
                    process.stuck_ms = 0
                if process is not role.process:
                    process.die("is found and killed")
            if role.name.partition("#")[1]:
                role.rests = True
                role.process.die("is killed")
                if isinstance(role.process, StageProcess):
                    role.process.expel()
            elif not role.lost and (role.rests or not role.process.alive):
                role.begin()
        self._ask(Ask("probe", "carol", "p", "hello", 0))

    def _until_quiet(self) -> list[Violation]:
        """Time passes until nothing is wrong any more, or for so long that it never will be."""
        patience_ms = PATIENCE_MS + EVERY_PATIENCE_MS * int(self.plan.sizes.abandoned_s)
        end, quiet_ms = self.world.now_ms + patience_ms, QUIET_MS
        while True:
            self.world.run(end - self.world.now_ms, lambda: all(client.done for client in self.clients))
            self.world.run(quiet_ms)
            quiet_ms = min(2 * quiet_ms, LONGEST_QUIET_MS)
            history = self.history()
            raised = [Violation("raised", None, (), error, "nothing") for error in self.world.raised]
            violations = [*check(history), *self._given_up(history), *raised]
            if not violations or self.world.now_ms >= end:
                return violations

    def _given_up(self, history: History) -> Iterator[Violation]:
        """Replies that had all the time that a healed cell needs, and were failed nevertheless.

        That is the time for all tokens of all replies, one after the other, and for a replica that is stuck to be given
        up: it has the time of ten of its slowest steps.
        """
        slowest_ms = max((fault.for_ms for fault in self.plan.faults if fault.kind == "stuck"), default=0)
        needed_ms = REPAIR_MS + (8 * len(self.plan.asks) + 20) * sum(self.plan.sizes.step_ms) // 2 + 10 * slowest_ms
        for told in tell(history.of(REPLIES)).values():
            accepted = told.accepted
            from_ms = max(self._healed_ms, created_ms(told.reply))
            patient = accepted is not None and accepted.deadline_ms - from_ms >= needed_ms
            ill = told.end is not None and told.end.at_ms < self._healed_ms + REPAIR_MS
            stranded = told.reason == "no_replica" and ill
            lost = told.reason == "replica_lost" and told.attempt >= MOST_ATTEMPTS
            too_long = self.plan.sizes.blocks < 100 and (told.reason or "").startswith("context_length_exceeded")
            if told.state == "failed" and not (lost or too_long or stranded) and (patient or told.reason != "deadline"):
                yield Violation("given up", told.reply, (), told.reason, "an end by the replica or the user")

    def history(self) -> History:
        asks = {client.ask.name: client.ask for client in self.clients}
        expected: dict[Asked, Undisturbed] = {ask.key: undisturbed(self.tokenizer, ask) for ask in asks.values()}
        conversations = sorted({(ask.user, ask.conversation) for ask in asks.values()})
        return History(
            entries=read_entries(self.around.log, Decoder(self.around.log, CODEC)),
            streams=tuple(stream for client in self.clients for stream in client.streams()),
            requests=tuple(request for client in self.clients for request in client.requests()),
            undisturbed=expected if self.plan.sizes.alike else {},
            stored={
                (UserId(u), ConversationId(c)): self._stored(UserId(u), ConversationId(c)) for u, c in conversations
            },
            left=self._left(),
            grace_ms=GRACE_MS,
            context=self.tokenizer.context,
            waits=Waits(int(self.plan.sizes.abandoned_s * 1_000), int(CANCEL_AFTER_S * 1_000), self._healed_ms),
        )

    def _stored(self, user: UserId, conversation: ConversationId) -> tuple[tuple[str, str, str], ...]:
        saved = self.around.store.inner.messages(user, conversation, 1_000)
        return tuple((each.turn.role, each.turn.text, each.turn.status) for each in saved)

    def _left(self) -> dict[str, int]:
        left = {f"client {client.name} without an end": int(client.done is None) for client in self.clients}
        left["silent supervisors"] = int(self.world.now_ms - self._last_supervisor_beat() > SILENT_MS)
        for role in self.around.roles.values():
            process = role.process
            if role.lost:
                continue
            if isinstance(process, ReplicaProcess):
                replica = process.replica
                left[f"sequences in {process.name}"] = len(replica._jobs) + len(replica._engine._sequences)
                left[f"blocks of {process.name}"] = process.blocks - replica._engine.free_blocks
                left[f"attempts that {process.name} names as dropped"] = len(replica.load.dropped)
            elif isinstance(process, EdgeProcess):
                left |= {f"{what} of {process.name}": count for what, count in process.held.items()}
            elif isinstance(process, StageProcess) and process.runner and process.alive:
                left[f"answers that {process.name} waits for"] = len(process.runner._answers)
        return left

    def _last_supervisor_beat(self) -> int:
        for record in reversed(read_records(self.around.log, Place(REPLICAS, 0))):
            if isinstance(CODEC.decode(record.value), SupervisorBeat):
                return record.timestamp_ms
        return 0

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for place in sorted(self.around.log.places):
            for entry in self.around.log.places[place]._entries:
                record = entry.record
                digest.update(repr((place, record.offset, record.timestamp_ms, record.key, record.value)).encode())
        for client in self.clients:
            for stream in client.streams():
                digest.update(repr(stream).encode())
        return digest.hexdigest()
