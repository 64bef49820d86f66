"""Runs one replica process until it is told to leave, then lets it finish what it can."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

import uuid_utils

from engine.beats import Beats
from engine.config import ReplicaConfig
from engine.engine import Engine
from engine.eyes import Eyes
from engine.lanes import Lanes
from engine.leaving import Leaving
from engine.memory import fitting_blocks, keep_freed_memory
from engine.replica import Identity, Outbox, Replica
from engine.runner import Runner
from engine.scheduler import Limits
from engine.scripted import ScriptedRunner
from engine.sequence import Sequence, blocks_for
from engine.succession import Watch
from schemas.codec import Codec
from schemas.ids import Incarnation
from schemas.prefix import BLOCK_TOKENS
from schemas.settings import SettingError, load
from schemas.tokenizer import ChatTokenizer
from topics.config import KafkaConfig
from topics.errors import TopicsError
from topics.kafka import KafkaLog
from topics.outputs import Encoder, Routes
from topics.ready import announce
from topics.schemas import Decoder, publish
from topics.telemetry.config import TelemetryConfig
from topics.telemetry.logs import about, start_logging
from topics.telemetry.watched import WatchedEncoder

TOKEN_DELIVERY_S = 8.0
STRAGGLERS_S = 0.3
SPINS = "10000"  # some ten microseconds

logger = logging.getLogger(__name__)


def run(slot: int) -> int:
    """Serves one slot until it is told to leave; returns the exit status. Raises SettingError for bad settings."""
    telemetry = load(TelemetryConfig, os.environ)
    start_logging(f"replica-{slot}", telemetry.log)
    kafka, config = load(KafkaConfig, os.environ), load(ReplicaConfig, os.environ)
    if config.pool not in kafka.pools or slot >= kafka.slots:
        known = f"pools {', '.join(kafka.pools)} and {kafka.slots} slots"
        raise SettingError(f"replica {config.pool}/{slot}: LANEWAY_POOLS and LANEWAY_SLOTS know {known}")
    leaving = Leaving(config.drain_s)
    leaving.listen()
    tokenizer = ChatTokenizer.load(config.model)
    engine = make_engine(config, tokenizer)
    log, codec = KafkaLog(kafka), Codec()
    publish(log, codec)
    identity = Identity(config.pool, slot, Incarnation(f"{config.pool}-{slot}-{uuid_utils.uuid7().hex[-12:]}"))

    def outbox(encoder: Encoder) -> Outbox:
        return Outbox(log.producer(TOKEN_DELIVERY_S), encoder, Routes(kafka.sizes))

    eyes, me = Eyes(telemetry), identity.incarnation
    lanes = Lanes(log, Decoder(log, codec), config.pool, slot, eyes.read)
    watch = Watch(log, Decoder(log, codec), identity)
    own = outbox(WatchedEncoder(codec, kafka.sizes, me, eyes.metrics.wrote, eyes.spans))
    replica = Replica(identity, engine, tokenizer, lanes, own)
    replica.note()
    failures: list[BaseException] = []
    beats = Beats(replica, watch, outbox(Encoder(codec, kafka.sizes, me)), failures.append)
    beats.start()
    eyes.listen(log, replica, engine.free_blocks, lambda: leaving.asked)
    announce(os.environ)
    logger.info("replica %s is %s: %s", identity.name, identity.incarnation, replica.fingerprint)
    try:
        serve(replica, leaving, failures, eyes.stepped)
    except TopicsError as error:
        failures.append(error)
        replica.drop_all()
    for failure in failures:
        logger.error("stopping", extra=about(error=failure))
    if not beats.stop():
        logger.warning("the last heartbeat was not acknowledged: what was handed over goes on once this is missed")
    own.producer.close()
    lanes.close()
    return 1 if failures else 0


def serve(
    replica: Replica,
    leaving: Leaving,
    failures: list[BaseException],
    stepped: Callable[[Replica], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Steps until it is told to leave, then until it has nothing left or no more time, and hands over the rest.

    The router hears of it with a beat's delay: what it has sent meanwhile is taken too, to be handed over.
    """

    def step_while(going_on: Callable[[], bool]) -> None:
        while not failures and going_on():
            replica.step()
            stepped(replica)

    step_while(lambda: not leaving.asked and not (replica.draining and replica.idle))
    replica.drain()
    heard_by = clock() + STRAGGLERS_S
    step_while(lambda: not replica.idle and not leaving.over)
    replica.hand_over()
    step_while(lambda: clock() < heard_by)
    replica.hand_over()


def make_engine(config: ReplicaConfig, tokenizer: ChatTokenizer) -> Engine:
    """The engine that the settings describe. Raises UnsupportedModel."""
    runner = _scripted(config, tokenizer) if config.replica == "scripted" else _model(config, tokenizer)
    logger.info("%d blocks of 16 tokens, at most %d replies at once", runner.num_blocks, config.max_running)
    reserve = min(config.max_running, runner.num_blocks // 8)
    return Engine(runner, Limits(config.max_running, config.step_tokens, config.step_s, reserve))


def _scripted(config: ReplicaConfig, tokenizer: ChatTokenizer) -> Runner:
    blocks = config.kv_blocks or config.max_running * blocks_for(tokenizer.context)
    return ScriptedRunner(tokenizer, before_step=_pace(config.scripted_rate), num_blocks=blocks)


def _model(config: ReplicaConfig, tokenizer: ChatTokenizer) -> Runner:
    # A thread that spins long at a barrier takes the core from the broker and the edge beside it, one that never spins
    # sleeps and wakes thousands of times a step; read when torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    keep_freed_memory()
    import torch

    from engine.model_runner import ModelRunner
    from engine.ops import choose
    from engine.weights import load_weights

    torch.set_num_threads(config.torch_threads)
    ops, dtype = choose.ops(config.ops), choose.dtype(config.dtype)
    weights = load_weights(config.model, dtype)
    most = config.max_running * blocks_for(weights.config.context)
    block_bytes = weights.config.kv_bytes(BLOCK_TOKENS, weights.tensors["model.norm.weight"].itemsize)
    blocks = config.kv_blocks or fitting_blocks(block_bytes, config.kv_memory, most)
    return ModelRunner(weights, blocks, tokenizer.eos_ids, ops)


def _pace(rate: float) -> Callable[[list[Sequence]], None] | None:
    if not rate:
        return None
    return lambda _: time.sleep(1 / rate)
