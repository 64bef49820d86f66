"""What is to happen in a run, as plain data drawn from its seed: who asks what and how, and what goes wrong when.

The same seed gives the same plan. What comes of it is the machine's to decide: here are real processes and real time.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

STAGES = ("intake", "router", "settlement", "history", "supervisor")
REPLICAS = ("replica-0", "replica-1")
EDGES = ("edge-0", "edge-1")
BROKER = ("kafka",)
LIMITED = "dan"
USERS = ("ann", "ben", "cat", LIMITED)
# Of all asks of a run of two minutes a fourth are his, so that he meets each of these.
LIMITS = ("requests=12/7d", "tokens=6000/7d", "replies=2")

# Who a fault can fall on, and how often it is drawn.
TARGETS: dict[str, tuple[tuple[str, ...], int]] = {
    "kill": ((*STAGES, *REPLICAS, *REPLICAS, *EDGES), 10),
    "freeze": ((*STAGES, *REPLICAS, *REPLICAS, *EDGES), 6),
    "leave": ((*STAGES, *REPLICAS, *EDGES), 4),
    "fill": (("history", "history", "intake", "settlement"), 2),
    "kill broker": (BROKER, 1),
    "stop broker": (BROKER, 1),
    "freeze broker": (BROKER, 1),
    "fill broker": (BROKER, 1),
}
BROKER_AT_LEAST_S, BROKER_APART_S = 8.0, 40.0
LETTERS = "abcdefghijklmnopqrstuvwxyz    éß漢😀"


@dataclass(frozen=True)
class Cut:
    """The connection ends after event `after`: `closed` with a FIN, `reset` without, or `silent`: left open, unread.
    Its client is back `away_s` later.
    """

    after: int
    how: str
    away_s: float = 0.0


@dataclass(frozen=True)
class Ask:
    """One message of one client, and how that client behaves.

    `again_s`: others post it too, so much later, with the same key. `late_s`: it listens so long after its message was
    taken. `stop_after`, `leaves_after`: events after which its user stops the reply, or goes and never comes back.
    """

    name: str
    user: str
    conversation: str
    text: str
    at_s: float
    max_tokens: int = 200
    temperature: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    deadline_s: float = 120.0
    on_disconnect: str = "grace"
    streams: bool = False
    late_s: float = 0.0
    again_s: tuple[float, ...] = ()
    cuts: tuple[Cut, ...] = ()
    stop_after: int | None = None
    leaves_after: int | None = None
    leaves_how: str = "reset"

    @property
    def body(self) -> dict[str, object]:
        asked = {
            "text": self.text,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "stop": list(self.stop),
            "deadline_s": self.deadline_s,
            "on_disconnect": self.on_disconnect,
        }
        return {name: value for name, value in asked.items() if value not in (None, [])}


@dataclass(frozen=True)
class Fault:
    """`kind` falls on `target` at `at_s` and is over `for_s` later."""

    name: str
    kind: str
    target: str
    at_s: float
    for_s: float


@dataclass(frozen=True)
class Plan:
    seed: int
    minutes: float
    asks: tuple[Ask, ...]
    faults: tuple[Fault, ...]

    @property
    def troubled_s(self) -> float:
        """When the last fault is over and the last message is asked."""
        asked = (ask.at_s + sum(ask.again_s) for ask in self.asks)
        return max((*asked, *(fault.at_s + fault.for_s for fault in self.faults)), default=0.0)


def plan_of(seed: int, minutes: float) -> Plan:
    random = Random(f"chaos {seed}")
    until_s = minutes * 60
    asks, at_s = list[Ask](), 0.0
    while at_s < until_s:
        asks.append(_ask(random, f"c{len(asks)}", at_s))
        at_s += random.expovariate(0.8)
    return Plan(seed, minutes, tuple(asks), tuple(_faults(random, until_s * 0.9)))


def _ask(random: Random, name: str, at_s: float) -> Ask:
    leaves = random.random() < 0.12
    return Ask(
        name=name,
        user=random.choice(USERS),
        conversation=random.choice((name, name, name, "shared-a", "shared-b")),
        text="".join(random.choice(LETTERS) for _ in range(random.choice((3, 40, 120, 200, 300)))).strip() or "x",
        at_s=at_s,
        max_tokens=random.choice((1, 20, 100, 200, 300)),
        temperature=random.choice((0.0, 1.0, 1.0)),
        seed=random.choice((None, random.randint(0, 2**31))),
        stop=random.choice(((), (), (), ("e",), ("ab", "é"))),
        deadline_s=random.choice((180.0, 180.0, 180.0, 180.0, 8.0)),
        on_disconnect=random.choice(("grace", "grace", "continue", "cancel")),
        streams=random.random() < 0.5,
        late_s=random.choice((0.0, 0.0, 0.0, 1.0, 4.0)),
        again_s=random.choice(((), (), (), (0.0,), (random.uniform(0, 3),), (random.uniform(0, 8), 0.1))),
        cuts=tuple(_cuts(random, random.choice((0, 0, 1, 1, 2, 4)))),
        stop_after=random.choice((None, None, None, None, random.randint(0, 80))),
        leaves_after=random.randint(0, 30) if leaves else None,
        leaves_how=random.choice(("closed", "reset", "silent")),
    )


def _cuts(random: Random, count: int) -> list[Cut]:
    places = sorted(random.randint(0, 150) for _ in range(count))
    return [Cut(after, random.choice(("closed", "reset", "silent"))) for after in places]


def _faults(random: Random, until_s: float) -> list[Fault]:
    """One every few seconds; the broker is spared for a while after each of its own."""
    found, at_s, broker_from_s = list[Fault](), random.uniform(1, 4), BROKER_AT_LEAST_S
    kinds = [kind for kind, (_, weight) in TARGETS.items() for _ in range(weight)]
    while at_s < until_s:
        kind = random.choice(kinds)
        target = random.choice(TARGETS[kind][0])
        if target not in BROKER or at_s >= broker_from_s:
            found.append(Fault(f"f{len(found)}", kind, target, at_s, _lasts(random, kind)))
            broker_from_s = at_s + BROKER_APART_S if target in BROKER else broker_from_s
            at_s += random.expovariate(0.35) + (6.0 if target in BROKER else 0.3)
    return found


def _lasts(random: Random, kind: str) -> float:
    if kind == "freeze broker":
        return 5.0
    return random.choice((0.2, 1.0, 3.0, 5.0, 5.0, 9.0)) if kind == "freeze" else random.choice((0.1, 0.1, 2.0, 5.0))
