"""What all processes of a run share: the log, the store, the time, and how the cell is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from schemas.ids import Incarnation
from schemas.settings import load
from schemas.tokenizer import ChatTokenizer
from streams.admission import Model
from streams.config import StreamsConfig
from streams.runtime.inbox import Inbox
from streams.runtime.main import Cell
from streams.runtime.metrics import StageMeters, StageMetrics
from streams.stage import Stage
from tests.simulation.limited import MINI
from tests.simulation.processes import Process, Role
from tests.simulation.remembering import CODEC
from tests.simulation.sim_log import SharedLog
from tests.simulation.world import World
from topics.catalog import catalog
from topics.config import KafkaConfig
from topics.errors import Unavailable
from topics.log import Append, Record
from topics.outputs import Encoder, Routes
from topics.store.contract import History, SavedAt
from topics.store.sqlite import SqliteStore
from topics.telemetry.config import TelemetryConfig

METERS = StageMeters()
TABLES = ("turns", "conversations")
SLOTS, PARTITIONS = 2, 2
SETTINGS = {
    "LANEWAY_SLOTS": str(SLOTS),
    "LANEWAY_USER_PARTITIONS": str(PARTITIONS),
    "LANEWAY_REPLY_PARTITIONS": str(PARTITIONS),
}


class Unmeasured(StageMetrics):
    """Nobody scrapes a run, and counting takes a quarter of it."""

    def took(self, records: Sequence[Record], inputs: Sequence[str]) -> None:
        pass

    def looked(self, stage: Stage, inbox: Inbox, partitions: int) -> None:
        self.partitions = partitions


@dataclass(frozen=True)
class Sizes:
    """How a run's cell is cut: requests a tier may queue, replicas, replies that each runs, its blocks of keys.

    Replicas that are not `alike` each say something else, so that whose tokens count shows in the text. `step_ms` is
    what a replica's step takes, `acknowledged_ms` the longest that a record takes to the log. `comes_back`: all ask
    again when intake has forgotten. A reply goes on for nobody for `abandoned_s`, and waits for a replica `stranded_s`.
    `mini`: there is a pool for the mini model, with a router and a replica of its own.
    """

    backlog: int = 1_000
    replicas: int = 2
    running: int = 2
    blocks: int = 200
    alike: bool = True
    step_ms: tuple[int, int] = (20, 80)
    acknowledged_ms: int = 15
    comes_back: bool = False
    abandoned_s: float = 30.0
    stranded_s: float = 60.0
    mini: bool = False

    @property
    def settings(self) -> dict[str, str]:
        return {
            "LANEWAY_BACKLOG": str(self.backlog),
            "LANEWAY_ABANDON_AFTER": str(self.abandoned_s),
            "LANEWAY_NO_REPLICA_AFTER": str(self.stranded_s),
        }


@cache
def _store() -> SqliteStore:
    return SqliteStore(Path(":memory:"))


def empty_store() -> SqliteStore:
    """The product's store in memory; one for all runs, since it takes longer to make than a run."""
    store = _store()
    for table in TABLES:
        store._connection.execute(f"DELETE FROM {table}")
    return store


class SimStore:
    """The store, when it is there: until `down_until` it raises Unavailable."""

    def __init__(self, world: World) -> None:
        self.inner, self._world, self.down_until = empty_store(), world, 0

    def save(self, turns: Iterable[SavedAt]) -> None:
        self._check()
        self.inner.save(turns)

    def history(self, *args: Any) -> History:
        self._check()
        return self.inner.history(*args)

    def identity(self) -> str:
        self._check()
        return self.inner.identity()

    def deleted_ms(self, *args: Any) -> int:
        self._check()
        return self.inner.deleted_ms(*args)

    def _check(self) -> None:
        if self._world.now_ms < self.down_until:
            raise Unavailable("the store is down")


class Surroundings:
    """The log, the store and the time that all processes of a run share."""

    def __init__(self, world: World, tokenizer: ChatTokenizer, sizes: Sizes) -> None:
        self.world, self.tokenizer, self.sizes = world, tokenizer, sizes
        kafka = load(KafkaConfig, SETTINGS | ({"LANEWAY_POOLS": f"main,{MINI}"} if sizes.mini else {}))
        streams = load(StreamsConfig, sizes.settings)
        self.kafka, self.routes = kafka, Routes(kafka.sizes)
        CODEC.decoded.clear()
        self.store = SimStore(world)
        telemetry = load(TelemetryConfig, {})
        models = {tokenizer.name: Model(tokenizer, kafka.pools[0])}
        if sizes.mini:
            models[MINI] = Model(tokenizer, MINI)
        self.cell = Cell(kafka, streams, models, self.store.inner, self.routes, telemetry, METERS)
        self.roles: dict[str, Role] = {}
        topics = {topic.name: topic.partitions for topic in catalog(kafka.sizes)}
        self.log = SharedLog(topics, lambda: world.now_ms, self._appended)
        self.log.acknowledged_ms = sizes.acknowledged_ms

    def encoder(self, writer: Incarnation) -> Encoder:
        return Encoder(CODEC, self.kafka.sizes, writer)

    def role(self, name: str, make: Callable[[Role, str], Process]) -> Role:
        role = self.roles[name] = Role(self.world, name, make)
        return role

    def _appended(self, append: Append) -> None:
        self.world.note("log", append)
        for role in self.roles.values():
            role.wake(append.place.topic)
