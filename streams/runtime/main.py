"""Runs stages: each in a thread with its own clients, all in one process. The first that fails ends the process.

Ending is safe at any moment (`runner.py` says why), so an error is never retried here: whoever started the process
starts it again.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import uuid_utils

from schemas.codec import Codec
from schemas.ids import Incarnation
from schemas.settings import SettingError, load
from schemas.tokenizer import ChatTokenizer
from streams.admission import Model
from streams.config import StreamsConfig
from streams.history import History
from streams.intake import Intake
from streams.router import Router
from streams.runtime.effects import Effects
from streams.runtime.metrics import StageMeters, StageMetrics
from streams.runtime.requests import Requests
from streams.runtime.runner import Runner, Shell
from streams.runtime.watch import Watch
from streams.settlement import Settlement
from streams.stage import Message, Stage
from streams.supervisor import Patience, Supervisor
from topics.config import KafkaConfig
from topics.errors import TopicsError, Unavailable
from topics.kafka import KafkaLog
from topics.outputs import Routes
from topics.ready import announce
from topics.schemas import Decoder, publish
from topics.store.config import StoreConfig
from topics.store.contract import SavedAt, Store
from topics.store.opening import open_store
from topics.store.progress import Progress
from topics.telemetry.config import TelemetryConfig
from topics.telemetry.listener import Listener
from topics.telemetry.logs import about, start_logging
from topics.telemetry.probe import KafkaProbe
from topics.telemetry.trace import Spans, tracer_of
from topics.telemetry.watched import WatchedEncoder

T = TypeVar("T")

CLOSE_S = 10.0
FAILED_CLOSE_S = 3.0
STANDS_STILL_S = 120.0
MINI_POOL = "mini"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cell:
    """What the stages of one process share."""

    kafka: KafkaConfig
    streams: StreamsConfig
    models: Mapping[str, Model]
    store: Store
    routes: Routes
    telemetry: TelemetryConfig
    meters: StageMeters
    stopping: threading.Event = field(default_factory=threading.Event)
    waiting: threading.Event = field(default_factory=threading.Event)


def intake(cell: Cell, _: Incarnation) -> Stage:
    return Intake(cell.models, cell.routes, cell.streams.active_cache)


def router(cell: Cell, _: Incarnation) -> Stage:
    return Router(cell.kafka.pools[0], cell.streams.backlog, cell.routes)


def settlement(cell: Cell, _: Incarnation) -> Stage:
    return Settlement(cell.routes)


def history(cell: Cell, _: Incarnation) -> Stage:
    return History(first_answer(lambda: cell.store.identity(), cell))


def supervisor(cell: Cell, incarnation: Incarnation) -> Stage:
    return Supervisor(incarnation, cell.routes, Patience(cell.streams.abandoned, cell.streams.stranded))


STAGES: dict[str, Callable[[Cell, Incarnation], Stage]] = {
    "intake": intake,
    "router": router,
    "settlement": settlement,
    "history": history,
    "supervisor": supervisor,
}


def models_of(kafka: KafkaConfig, streams: StreamsConfig) -> dict[str, Model]:
    """What is served, by name. Raises SettingError for a mini model without its pool or without a name of its own."""
    tokenizer = ChatTokenizer.load(streams.model)
    models = {tokenizer.name: Model(tokenizer, kafka.pools[0])}
    if not streams.mini:
        return models
    if MINI_POOL not in kafka.pools or streams.mini in models:
        raise SettingError(
            f"LANEWAY_MINI_MODEL={streams.mini!r}: expected another name than {tokenizer.name!r}, and a pool "
            f"{MINI_POOL} in LANEWAY_POOLS={','.join(kafka.pools)!r}"
        )
    own = ChatTokenizer.load(streams.mini_folder) if streams.mini_folder else tokenizer
    return models | {streams.mini: Model(own, MINI_POOL)}


def by_pool(names: Sequence[str], pools: Sequence[str]) -> list[tuple[str, str]]:
    """Each stage by its name; and with the router another of each pool but the first, with the pool that is its own."""
    others = [(f"{name}.{pool}", pool) for name in names if name == "router" for pool in pools[1:]]
    return [*((name, "") for name in names), *others]


def run(names: Sequence[str]) -> int:
    """Runs the named stages until SIGTERM or SIGINT; returns the exit status. Raises SettingError for bad settings.

    When one has failed, or stands still, the process ends with status 1 whatever its other threads wait for: whoever
    started it is to start it again.
    """
    telemetry = load(TelemetryConfig, os.environ)
    start_logging("+".join(names), telemetry.log)
    kafka, streams = load(KafkaConfig, os.environ), load(StreamsConfig, os.environ)
    models = models_of(kafka, streams) if "intake" in names else {}  # nobody else reads or writes text
    store = open_store(load(StoreConfig, os.environ))
    routes = Routes(kafka.sizes)
    stopping = threading.Event()
    cell = Cell(kafka, streams, models, store, routes, telemetry, StageMeters(), stopping)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    publish(KafkaLog(kafka), Codec())
    drivers = [Driver(name, pool, cell, stopping) for name, pool in by_pool(names, kafka.pools)]
    listen(cell, drivers, stopping)
    for driver in drivers:
        driver.start()
    while not stopping.wait(0.05) and not all(driver.running or driver.waiting for driver in drivers):
        pass
    if not stopping.is_set():
        logger.info("running: %s", ", ".join(names))
        announce(os.environ)
    while not stopping.wait(1.0):
        for driver in drivers:
            driver.check()
    until = time.monotonic() + (FAILED_CLOSE_S if any(driver.failed for driver in drivers) else CLOSE_S)
    for driver in drivers:
        driver.join(max(0.0, until - time.monotonic()))
    if any(driver.failed or driver.is_alive() for driver in drivers):
        logging.shutdown()
        os._exit(1)  # a thread that waits for a broker may wait for ever
    logger.info("stopped")
    return 0


def first_answer(ask: Callable[[], T], cell: Cell) -> T:
    """What a store that may not be up yet answers at last; nobody else waits for it. Raises Unavailable when the
    process is told to stop.
    """
    while True:
        try:
            found = ask()
        except Unavailable as error:
            if not cell.waiting.is_set():
                logger.error("history waits for the store", extra=about(error=error))
                cell.waiting.set()
            if cell.stopping.wait(1.0):
                raise
        else:
            cell.waiting.clear()
            return found


def listen(cell: Cell, drivers: Sequence[Driver], stopping: threading.Event) -> None:
    """Opens the metrics port, if one is set, for as long as the process lives."""
    if not cell.telemetry.metrics_port:
        return
    probe = KafkaProbe(KafkaLog(cell.kafka), cell.meters.registry)
    probe.start()

    def missing() -> list[str]:
        lacking = [reason for driver in drivers for reason in driver.missing()]
        return [*lacking, *probe.missing(), *(["leaving"] if stopping.is_set() else [])]

    Listener((cell.telemetry.metrics_host, cell.telemetry.metrics_port), cell.meters.registry, missing)


class Driver(threading.Thread):
    """One stage in its thread. `running` once it owns its clients; `failed` when an error ended it."""

    def __init__(self, name: str, pool: str, cell: Cell, stopping: threading.Event) -> None:
        super().__init__(name=name)
        self._pool, self._cell, self._stopping = pool, cell, stopping
        self.running = self.failed = False
        self._stepped_at = time.monotonic()
        tracer = tracer_of(name, cell.telemetry.trace)
        self._watch = Watch(StageMetrics(name, cell.meters), Spans(name, tracer) if tracer else None)

    @property
    def waiting(self) -> bool:
        return self.name == History.name and self._cell.waiting.is_set()

    def missing(self) -> list[str]:
        if self.waiting:
            return [f"{self.name}: waits for the store, which cannot be used"]
        return self._watch.missing() if self.running else [f"{self.name}: its clients are not open yet"]

    def check(self) -> None:
        """Counts as failed when no step has ended for STANDS_STILL_S, more than all timeouts of a step together."""
        if self.waiting:
            self._stepped_at = time.monotonic()
        if time.monotonic() - self._stepped_at > STANDS_STILL_S and not self._stopping.is_set():
            logger.error("stage %s has stood still for %.0f s", self.name, STANDS_STILL_S)
            self.failed = True
            self._stopping.set()

    def run(self) -> None:
        try:
            runner = runner_of(self.name, self._pool, self._cell, self._watch)
            self.running = True
            while not self._stopping.is_set():
                self._stepped_at = time.monotonic()
                runner.step(self._stepped_at)
            runner.close()
        except TopicsError as error:
            self.failed = True
            logger.error("stopping", extra=about(error=error))
        except BaseException:
            self.failed = True
            logger.exception("stopping")
            raise
        finally:
            self._stopping.set()


def runner_of(name: str, pool: str, cell: Cell, watch: Watch) -> Runner:
    """A runner for one stage with clients of its own."""
    log, codec = KafkaLog(cell.kafka), Codec()
    decoder = Decoder(log, codec)
    incarnation = Incarnation(f"{name}-{uuid_utils.uuid7().hex[-12:]}")
    longest = max((model.tokenizer.context for model in cell.models.values()), default=0)
    effects = Effects(Requests(log), cell.store, Progress(log, cell.store), Decoder(log, Codec()), cell.routes, longest)

    def project(messages: Sequence[Message]) -> None:
        cell.store.save(SavedAt(message.offset, message.event) for message in messages)

    shell = Shell(
        log=log,
        decoder=decoder,
        encoder=WatchedEncoder(codec, cell.kafka.sizes, incarnation, watch.metrics.wrote, watch.spans),
        beside=ThreadPoolExecutor(2, thread_name_prefix=f"{name}-beside"),
        instance=cell.streams.instance,
        perform=effects.perform,
        project=project,
        watch=watch,
    )
    other = Router(pool, cell.streams.backlog, cell.routes) if pool else None
    return Runner(other or STAGES[name](cell, incarnation), shell)
