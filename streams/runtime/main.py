"""Runs stages: each in a thread with its own clients, all in one process. The first that fails ends the process.

Ending is safe at any moment (`runner.py` says why), so an error is never retried here: whoever started the process
starts it again.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import uuid_utils

from schemas.codec import Codec
from schemas.events import HistoryLoaded
from schemas.ids import Incarnation
from schemas.settings import load
from schemas.tokenizer import ChatTokenizer
from streams.admission import Model
from streams.config import StreamsConfig
from streams.history import History, save
from streams.intake import Intake
from streams.router import Router
from streams.runtime.runner import Runner, Shell
from streams.settlement import Settlement
from streams.stage import HistoryWanted, Stage
from streams.supervisor import Supervisor
from topics.config import KafkaConfig
from topics.errors import TopicsError, Unavailable
from topics.kafka import KafkaLog
from topics.outputs import Encoder, Output, Routes
from topics.schemas import Decoder, publish
from topics.store.sqlite import SqliteStore

STAGES = ("intake", "router", "settlement", "history", "supervisor")

logger = logging.getLogger(__name__)


def run(names: Sequence[str]) -> int:
    """Runs the named stages until SIGTERM or SIGINT; returns the exit status. Raises SettingError for bad settings."""
    kafka, streams = load(KafkaConfig, os.environ), load(StreamsConfig, os.environ)
    publish(KafkaLog(kafka), Codec())
    stopping, failures = threading.Event(), []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())

    def drive(name: str) -> None:
        try:
            _drive(_runner(name, kafka, streams), stopping)
        except (TopicsError, OSError) as error:
            logger.error("stage %s stops: %s", name, error)
            failures.append(name)
        except BaseException:
            failures.append(name)
            raise
        finally:
            stopping.set()

    threads = [threading.Thread(target=drive, args=(name,), name=name) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 1 if failures else 0


def _drive(runner: Runner, stopping: threading.Event) -> None:
    while not stopping.is_set():
        runner.step(time.monotonic())
    runner.close()


def _runner(name: str, kafka: KafkaConfig, streams: StreamsConfig) -> Runner:
    log, codec, routes = KafkaLog(kafka), Codec(), Routes(kafka.sizes)
    incarnation = Incarnation(f"{name}-{uuid_utils.uuid7().hex[-12:]}")
    store = SqliteStore(streams.store)
    stage, perform = _stage(name, kafka, streams, store, routes, incarnation)
    shell = Shell(
        log=log,
        decoder=Decoder(log, codec),
        encoder=Encoder(codec, kafka.sizes, incarnation),
        beside=ThreadPoolExecutor(2, thread_name_prefix=f"{name}-beside"),
        instance=streams.instance,
    )
    raise NotImplementedError((sys, shell, perform, History, save, Unavailable, HistoryLoaded, HistoryWanted, Output))
