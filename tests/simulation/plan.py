"""What is to happen in a run, as plain data drawn from its seed: who asks what, and what goes wrong when.

Clients and faults can be taken out one by one, and the rest stays as it was: that is how a failing seed shrinks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from schemas import quota_records
from tests.simulation.clients import LAST_MOMENT, Ask
from tests.simulation.limited import Change, branching, changes_of, plans_of
from tests.simulation.surroundings import Sizes
from topics.catalog import EDGES, MESSAGES, REPLICAS, REPLIES, TURNS, commands_topic, generate_topic, lane_topic

STAGES = ("intake", "router", "supervisor", "settlement", "history")
REPLICA_ROLES = ("replica0", "replica1")
EDGE_ROLES = ("edge0", "edge1")
ANYBODY = (*STAGES, *REPLICA_ROLES, *EDGE_ROLES)

TARGETS = {
    "crash": ANYBODY,
    "pause": ANYBODY,
    "zombie": (*STAGES, *REPLICA_ROLES),
    "down": ANYBODY,
    "lose": REPLICA_ROLES[1:],
    "freeze": ANYBODY,
    "expel": STAGES,
    "second": STAGES,
    "fail": ANYBODY,
    "slow": ANYBODY,
    "silence": (*REPLICA_ROLES, *EDGE_ROLES),
    "drain": (*REPLICA_ROLES, *EDGE_ROLES),
    "leave": STAGES,
    "no store": ("intake", "history"),
    "compact": ("intake", "settlement", "supervisor"),
    "repeat": REPLICA_ROLES,
    "stuck": REPLICA_ROLES,
    "stuck for ever": REPLICA_ROLES[1:],
}

WRITES = {
    "intake": (REPLIES, generate_topic("main", "paid"), TURNS, MESSAGES),
    "router": (lane_topic("main", "paid"), lane_topic("main", "free"), REPLIES),
    "supervisor": (REPLIES, commands_topic("main"), generate_topic("main", "resume"), REPLICAS, EDGES),
    "settlement": (MESSAGES, TURNS),
    "history": (TURNS,),
    "replica": (REPLIES, REPLIES, REPLICAS),
    "edge": (MESSAGES, REPLIES, EDGES),
}

ASKED_UNTIL_MS = 3_000
FAULTS_UNTIL_MS = 3_000
USUAL_MS = (30, 200, 500, 800, 1_200, 2_500, 4_000)
LONG_MS = (6_000, 9_000, 14_000)  # an edge is taken for dead after 5 s, a replica that does not step for stuck
LONG = {("stuck", role) for role in REPLICA_ROLES} | {
    (kind, role) for kind in ("down", "freeze", "silence") for role in EDGE_ROLES
}
PATIENT_S, PATIENT_STEP_MS, PATIENT_DEADLINE_MS = 30.0, (2_000, 5_000), 120_000
LIMITED = (4, 15, 18, 19, 20, 22, 23)  # of 24 seeds; those by which other faults are found stay what they were
LETTERS = "abcdefghijklmnopqrstuvwxyz é漢"


@dataclass(frozen=True)
class Fault:
    """`kind` happens to the process that holds `role`, at its call number `call` after `at_ms`, for `for_ms`."""

    name: str
    kind: str
    role: str
    at_ms: int
    call: int = 0
    for_ms: int = 0
    topic: str = ""
    count: int = 0


@dataclass(frozen=True)
class Plan:
    """`limits` are the plans that hold for users from the beginning; none: nothing is limited."""

    seed: int
    asks: tuple[Ask, ...]
    faults: tuple[Fault, ...]
    sizes: Sizes
    changes: tuple[Change, ...] = ()
    limits: tuple[quota_records.Plan, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """What can be taken out."""
        return tuple(part.name for part in (*self.asks, *self.faults, *self.changes))

    @property
    def troubled_ms(self) -> int:
        """When the last fault is over and the last message is asked."""
        asked = (ask.at_ms + sum(ask.again_ms[:1]) for ask in self.asks)
        changed = (change.at_ms for change in self.changes)
        return max((*asked, *changed, *(fault.at_ms + fault.for_ms for fault in self.faults)), default=0)

    def only(self, names: frozenset[str]) -> Plan:
        return replace(
            self,
            asks=tuple(ask for ask in self.asks if ask.name in names),
            faults=tuple(fault for fault in self.faults if fault.name in names),
            changes=tuple(change for change in self.changes if change.name in names),
        )


def plan_of(seed: int) -> Plan:
    random = Random(f"plan {seed}")
    sizes = _sizes(random)
    patient = random.random() < 0.04
    if patient:
        sizes = replace(sizes, abandoned_s=PATIENT_S, step_ms=PATIENT_STEP_MS)
    within_ms = random.choice((100, 600, ASKED_UNTIL_MS))
    asks = tuple(_ask(random, f"c{n}", within_ms, sizes) for n in range(random.choice((3, 5, 8))))
    if patient:
        asks = tuple(replace(ask, deadline_ms=PATIENT_DEADLINE_MS) for ask in asks[:3])
    focus = random.choice(
        (ANYBODY, ANYBODY, REPLICA_ROLES, REPLICA_ROLES, STAGES[:1], STAGES[1:2], STAGES[2:3], STAGES[3:4], EDGE_ROLES)
    )
    faults = tuple(_fault(random, f"f{n}", focus) for n in range(random.choice((0, 2, 4, 6, 9, 12))))
    changes = tuple(_change(random, f"d{n}", asks) for n in range(random.choice((0, 0, 0, 1, 3))))
    return _doubled(_limited(Plan(seed, asks, faults, sizes, changes), patient))


def _doubled(plan: Plan) -> Plan:
    """Of some of the seeds: an edge's client of the log sends again, long after, what had arrived."""
    random = Random(f"doubled {plan.seed}")
    if random.random() > 0.15:
        return plan
    at_ms, count = random.randint(0, ASKED_UNTIL_MS), random.choice((1, 2, 5))
    return replace(plan, faults=(*plan.faults, Fault("w0", "again", random.choice(EDGE_ROLES), at_ms, count=count)))


def _limited(plan: Plan, patient: bool) -> Plan:
    """Of some of the seeds: with limits and branches, and with faults of those who reckon with them."""
    random = Random(f"limited {plan.seed}")
    if patient or plan.seed % 24 not in LIMITED:
        return plan
    mini = random.random() < 0.4
    limits = plans_of(random, mini)
    asks = branching(random, plan.asks)
    faults = [_fault(random, f"q{n}", ("intake",)) for n in range(random.choice((0, 0, 1, 2)))]
    if random.random() < 0.5:
        faults.append(Fault("again", "again", "settlement", random.randint(0, 2_000), count=random.choice((1, 3))))
    if mini and random.random() < 0.3:
        kind = random.choice(("crash", "down", "freeze"))
        faults.append(Fault("m0", kind, "mini0", random.randint(0, 3_000), for_ms=random.choice(USUAL_MS)))
    return replace(
        plan,
        asks=asks,
        faults=(*plan.faults, *faults),
        sizes=replace(plan.sizes, mini=mini),
        changes=(*plan.changes, *changes_of(random, limits, asks)),
        limits=limits,
    )


def _sizes(random: Random) -> Sizes:
    running, blocks = random.choice(((1, 200), (1, 200), (3, 200), (3, 6)))
    return Sizes(
        backlog=random.choice((1_000, 1_000, 1_000, 1)),
        replicas=random.choice((1, 2, 2)),
        running=running,
        blocks=blocks,
        acknowledged_ms=random.choice((15, 15, 15, 300)),
        alike=random.random() < 0.6,
        step_ms=random.choice(((20, 80), (20, 80), (20, 80), (150, 400), (600, 1_500), (1_500, 3_000))),
        comes_back=random.random() < 0.2,
        abandoned_s=random.choice((2.0, 2.0, 4.0)),
        stranded_s=random.choice((60.0, 60.0, 60.0, 2.0)),
    )


def _ask(random: Random, name: str, within_ms: int, sizes: Sizes) -> Ask:
    text = "".join(random.choice(LETTERS) for _ in range(random.choice((1, 3, 6, 8, 8, 8))))
    ask = Ask(
        name=name,
        user=random.choice(("alice", "bob")),
        conversation=random.choice("cdefgh"),
        text=text if text.strip() else "x",
        at_ms=random.randint(0, within_ms),
        max_tokens=random.choice((1, 4, 8, 10, 10, 10)),
        stop=random.choice(((), (), (), ("e",), ("ab", "é"))),
        deadline_ms=random.choice((30_000, 30_000, 30_000, 6_000, 900)),
        again_ms=random.choice(((), (), (0,), (random.randint(1, 800),), (random.randint(1, 5_000), 3))),
        stop_ms=random.choice((None, None, None, None, random.randint(0, 400))),
        cuts=random.choice(((), (), (random.randint(10, 900),), (random.randint(10, 300), random.randint(300, 2_000)))),
        on_disconnect=random.choice(("grace", "grace", "cancel", "continue")),
    )
    gone_ms = random.choice((None, None, random.randint(0, 300), random.randint(0, 1_500)))
    back_ms = int(random.uniform(0.3, 2.0) * sizes.abandoned_s * 1_000)  # beats are not exactly half a second apart
    return replace(ask, gone_ms=gone_ms, back_ms=random.choice((None, back_ms, LAST_MOMENT)))


def _change(random: Random, name: str, asks: tuple[Ask, ...]) -> Change:
    """Of a conversation in which somebody asks."""
    ask = random.choice(asks)
    at_ms = ask.at_ms + random.randint(0, random.choice((300, 2_000, 8_000)))
    return Change(name, ask.user, ask.conversation, at_ms, random.choice((None, None, "a title")))


def _fault(random: Random, name: str, focus: tuple[str, ...]) -> Fault:
    """Of a kind that can happen to one of `focus`."""
    possible = {kind: tuple(role for role in roles if role in focus) for kind, roles in TARGETS.items()}
    kind = random.choice([kind for kind, roles in possible.items() if roles])
    role = random.choice(possible[kind])
    return Fault(
        name=name,
        kind=kind,
        role=role,
        at_ms=random.randint(0, random.choice((500, FAULTS_UNTIL_MS))),
        call=random.choice((0, 1, 2, 3, 5, 8, 13, 21)),
        for_ms=random.choice(USUAL_MS + (2 * LONG_MS if (kind, role) in LONG else ())),
        topic=random.choice(WRITES[role.rstrip("0123456789")]),
        count=random.choice((1, 1, 2, 5)),
    )
