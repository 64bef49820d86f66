"""One run: a plan in, what came of it out. It ends by healing everything, running until quiet, and the checker.

After the healing one more message is asked: a cell that lost nothing but answers nobody has not healed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from schemas.events import ConversationDeleted
from schemas.ids import ConversationId, Incarnation, UserId, created_ms
from schemas.quota_records import PlansLoaded
from schemas.tokenizer import ChatTokenizer
from streams.active import KEPT_IDLE_MS
from streams.supervisor import MOST_ATTEMPTS
from tests.checker.history import History
from tests.checker.rules import check
from tests.checker.telling import tell
from tests.checker.violation import Violation
from tests.simulation.cell import ReplicaProcess, StageProcess
from tests.simulation.choices import Choices
from tests.simulation.clients import PLAN_OF, Ask, Client
from tests.simulation.edge import EdgeProcess
from tests.simulation.evidence import history_of
from tests.simulation.faults import happen
from tests.simulation.limited import MINI, Change
from tests.simulation.plan import EDGE_ROLES, REPLICA_ROLES, STAGES, Plan
from tests.simulation.surroundings import PARTITIONS, Surroundings
from tests.simulation.world import World
from topics.catalog import MESSAGES, REPLIES
from topics.log import Place
from topics.outputs import Output

QUIET_MS = 1_500
LONGEST_QUIET_MS = 12_000
PATIENCE_MS = 60_000
EVERY_PATIENCE_MS = 5_000
REPAIR_MS = 8_000
TOLD_MS = 600
DELETING_EVERY_MS = 300
UNSAVED, SAVED_AGAIN_MS = 0.3, 4_000


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
        self._apply(plan)
        for name in (*STAGES, f"router.{MINI}") if plan.sizes.mini else STAGES:
            self.around.role(name, partial(StageProcess, self.around)).begin()
        for name in (*REPLICA_ROLES[: plan.sizes.replicas], *((f"{MINI}0",) if plan.sizes.mini else ())):
            self.around.role(name, partial(ReplicaProcess, self.around)).begin()
        edges = [self.around.role(name, partial(EdgeProcess, self.around)) for name in EDGE_ROLES]
        for role in edges:
            role.begin()
        self.clients: list[Client] = []
        self._choices = Choices(self.around, self.clients)
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
            self.world.after(ask.at_ms + later, partial(self._choices.begin, client))

    def _apply(self, plan: Plan) -> None:
        """As `laneway plans apply` before anybody has asked."""
        encoder, producer = self.around.encoder(Incarnation("command")), self.around.log.producer()
        for partition in range(PARTITIONS if plan.limits else 0):
            applied = Output(Place(MESSAGES, partition), "", PlansLoaded(plan.limits))
            producer.send(encoder.append(applied))

    def _change(self, change: Change) -> None:
        user = UserId(change.user)
        if change.what == "everything":
            self._delete(user, frozenset())
        elif edge := self._edge():
            self.world.note(edge.name, change)
            edge.guarded(lambda: edge.ask_usage(user) if change.what == "usage" else edge.change(change.event))

    def _edge(self) -> EdgeProcess | None:
        """One that is up."""
        up = [role.process for role in self._edges if role.process.alive]
        edges = [process for process in up if process not in self.world.standing]
        return edges[0] if edges and isinstance(edges[0], EdgeProcess) else None

    def _delete(self, user: UserId, asked: frozenset[ConversationId]) -> None:
        """As `laneway users delete`: a deletion for each conversation, until the store shows none."""
        if found := {line.id for line in self.around.store.inner.conversations(user, 1_000)}:
            if edge := self._edge():
                for conversation in sorted(found - asked):
                    gone = ConversationDeleted(user, conversation)
                    edge.guarded(partial(edge.change, gone))
                asked |= found
            self.world.after(DELETING_EVERY_MS, partial(self._delete, user, asked))

    def _come_back(self) -> None:
        """So much later that intake knows everything from the store: all is asked again, and one thing more. In some
        runs what was said last is not in the store by then.
        """
        unsaved = self.world.random("unsaved").random() < UNSAVED
        if unsaved:
            self._say_unsaved()
        self.world.note("world", f"sleeps for {KEPT_IDLE_MS} ms")
        self.world.now_ms += KEPT_IDLE_MS + 1_000
        if unsaved:
            self.world.after(SAVED_AGAIN_MS, self.around.roles["history"].begin)
        for ask in self.plan.asks:
            client = Client(self.world, f"{ask.name}.late", replace(ask, gone_ms=None), self._edges)
            self.clients.append(client)
            late_ms = self.world.random(f"late {ask.name}").randint(0, 2_000)
            self.world.after(late_ms, partial(self._choices.begin, client))
            once_more = replace(ask, name=f"{ask.name}.next", at_ms=3_000, again_ms=(), cuts=(), stop_ms=None)
            self._ask(replace(once_more, gone_ms=None))

    def _say_unsaved(self) -> None:
        """Nobody saves any more: something is said in every conversation, and saved when everybody has come back."""
        history = self.around.roles["history"]
        history.rests = True
        history.process.die("is killed")
        for ask in self.plan.asks:
            unsaved = replace(ask, name=f"{ask.name}.unsaved", text=f"{ask.text}!", at_ms=0, branch="", again_ms=())
            self._ask(replace(unsaved, cuts=(), stop_ms=None, gone_ms=None))
        longest_ms = max(ask.deadline_ms for ask in self.plan.asks) + PATIENCE_MS
        self.world.run(longest_ms, lambda: all(client.done for client in self.clients))
        self.world.run(QUIET_MS)

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
            self._ask_usage()
            history = self.history()
            raised = [Violation("raised", None, (), error, "nothing") for error in self.world.raised]
            violations = [*check(history), *self._given_up(history), *raised]
            if not violations or self.world.now_ms >= end:
                return violations

    def _ask_usage(self) -> None:
        if self.plan.limits and (edge := self._edge()):
            for user in sorted(PLAN_OF):
                edge.guarded(partial(edge.ask_usage, UserId(user)))
            self.world.run(TOLD_MS)

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
        return history_of(self.around, self.clients, self._healed_ms)

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
