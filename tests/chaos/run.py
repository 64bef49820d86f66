"""One run of chaos: a plan in, what came of it out. It ends by healing everything and waiting until all is quiet.

After the healing one more message is asked: a stack that lost nothing but answers nobody has not healed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.client import PATIENCE_S, Client, clients_of
from tests.chaos.faults import Faults
from tests.chaos.memory import Memory
from tests.chaos.plan import Ask, Plan
from tests.chaos.reading import Judge
from tests.chaos.troubled import TroubledStack
from tests.checker.telling import Told
from tests.checker.violation import Violation

LOOK_EVERY_S, JUDGE_EVERY_S = 1.0, 2.0
QUIET_WITHIN_S = 90.0
ENDERS = ("kafka", "supervisor")


@dataclass(frozen=True)
class Outcome:
    """What fell on whom how often, what clients did, how replies ended, and every promise that was not kept."""

    plan: Plan
    fallen: Counter[tuple[str, str]]
    clients: tuple[Client, ...]
    told: tuple[Told, ...]
    memory: Memory
    violations: tuple[Violation, ...]

    @property
    def accepted(self) -> list[Told]:
        return [told for told in self.told if told.accepted]


class Run:
    """`earlier` clients of the same stack are judged with those of the plan."""

    def __init__(self, plan: Plan, stack: TroubledStack, judge: Judge, say: Callable[[str], None]) -> None:
        self._plan, self._stack, self._judge, self._say = plan, stack, judge, say
        self._memory = Memory()
        self._looked = time.monotonic()

    def outcome(self, earlier: tuple[Client, ...] = ()) -> Outcome:
        due = [pair for ask in self._plan.asks for pair in clients_of(ask, self._stack.edges_of(ask.user))]
        due.sort(key=lambda pair: -pair[0])
        clients = [client for _, client in due]
        faults = Faults(self._stack, self._plan.faults)
        began = time.monotonic()
        while due or not faults.over:
            now_s = time.monotonic() - began
            while due and due[-1][0] <= now_s:
                due.pop()[1].start()
            faults.happen(now_s)
            self._pass()
        self._say("all faults are over")
        self._heal()
        probe = Ask("probe", "ann", "probe", "is anybody there?", 0.0)
        clients += [client.start() for _, client in clients_of(probe, self._stack.edges_of(probe.user))]
        self._wait_for(clients)
        violations = self._until_quiet([*earlier, *clients])
        told = self._judge.told(self._judge.history(clients))
        grown = self._memory.too_much()
        return Outcome(
            self._plan, faults.fallen, tuple(clients), tuple(told.values()), self._memory, (*violations, *grown)
        )

    def _heal(self) -> None:
        began = time.monotonic()
        self._stack.heal()
        self._judge.away_s += time.monotonic() - began

    def _pass(self) -> None:
        self._stack.mend()
        if (since_s := time.monotonic() - self._looked) > LOOK_EVERY_S:
            self._looked = time.monotonic()
            self._memory.look(self._stack, self._looked)
            self._judge.away_s += 0 if all(map(self._stack.up, ENDERS)) else since_s
        time.sleep(0.03)

    def _wait_for(self, clients: list[Client]) -> None:
        until = time.monotonic() + PATIENCE_S
        while any(client.done is None for client in clients) and time.monotonic() < until:
            self._pass()
        for client in clients:
            client.close()

    def _until_quiet(self, clients: list[Client]) -> list[Violation]:
        """Time passes until nothing is wrong any more, or for so long that it never will be."""
        until = time.monotonic() + QUIET_WITHIN_S
        while (violations := self._judge.violations(clients)) and time.monotonic() < until:
            judged = time.monotonic()
            while time.monotonic() - judged < JUDGE_EVERY_S:
                self._pass()
        return violations
