"""One edge process: settings in, clients opened on the loop, requests served until a signal or a lost log."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from edge.access import Access
from edge.app import build
from edge.auth import BadKeys, Keys
from edge.config import EdgeConfig, TokenConfig
from edge.edge import Edge, Surroundings
from edge.metrics import Metrics
from edge.seal import Sealer
from edge.server import EdgeServer
from edge.tails import Tails
from edge.tls import tls_of
from edge.tokens import BadKeySet, Tokens
from edge.traced import RequestSpans
from schemas.codec import Codec
from schemas.settings import SettingError, load
from topics.config import KafkaConfig
from topics.errors import Unavailable
from topics.kafka import KafkaLog
from topics.schemas import Decoder, publish
from topics.store.config import StoreConfig
from topics.store.contract import Store
from topics.store.opening import open_store
from topics.telemetry.config import TelemetryConfig
from topics.telemetry.logs import about, start_logging
from topics.telemetry.trace import tracer_of

logger = logging.getLogger(__name__)


class EdgeProcess:
    """An edge and its server; `failure` is what ended it, if it was not a signal."""

    def __init__(self, config: EdgeConfig, around: Surroundings, port: int) -> None:
        self._config, self._around = config, around
        self.failure: BaseException | None = None
        self.edge: Edge | None = None
        metrics = Metrics()
        app = build(config, self._opened, metrics)
        self.server = EdgeServer(app, replace(config, port=port), metrics, self._drain, self._hurry)

    def run(self) -> None:
        """Serves until a signal comes or `failure` does."""
        self.server.run()

    @contextlib.asynccontextmanager
    async def _opened(self, metrics: Metrics) -> AsyncIterator[Edge]:
        config, around = self._config, self._around
        access = open_access(config)
        home = config.home(around.sizes.replies)
        decoder = Decoder(around.log, around.codec)
        tails = await asyncio.to_thread(Tails, around.log, home, decoder, metrics.skipped.inc, metrics.pace)
        self.edge = Edge(config, around, access, metrics, tails)
        self.edge.start(self._failed)
        try:
            yield self.edge
        finally:
            await self.edge.stop()

    async def _drain(self) -> None:
        if self.edge is not None:
            await self.edge.drain()

    def _hurry(self) -> None:
        if self.edge is not None:
            self.edge.hurried.set()

    def _failed(self, error: BaseException) -> None:
        logger.error("the reply log cannot be read any more", extra=about(error=error))
        self.failure = self.failure or error
        self.server.should_exit = True


def open_access(config: EdgeConfig) -> Access:
    """Raises SettingError when there is no usable keys file, key set or cell key."""
    try:
        keys = Keys(config.keys)
    except (OSError, BadKeys) as error:
        raise SettingError(f"LANEWAY_KEYS={str(config.keys)!r}: expected a keys file: {error}") from error
    try:
        tokens = Tokens(config.tokens) if config.tokens.jwks else None
    except (OSError, BadKeySet) as error:
        raise SettingError(f"LANEWAY_JWKS={str(config.tokens.jwks)!r}: expected a JWKS file: {error}") from error
    return Access(keys, tokens, Sealer(config.cell_key_bytes()))


def check_certificate(config: EdgeConfig) -> None:
    """Raises SettingError when TLS is asked for and cannot be spoken."""
    try:
        tls_of(config)
    except OSError as error:
        files = f"LANEWAY_TLS_CERTIFICATE={config.certificate!r}, LANEWAY_TLS_KEY={config.certificate_key!r}"
        raise SettingError(f"{files}: expected a certificate chain and its key, as PEM: {error}") from error


def opened_store(config: StoreConfig) -> Store:
    """Raises SettingError when the file cannot be used."""
    try:
        return open_store(config)
    except Unavailable as error:
        raise SettingError(f"LANEWAY_STORE={config.store!r}: expected a store: {error}") from error


def run(port: int | None, environ: Mapping[str, str] = os.environ) -> None:
    """Runs one edge in the foreground; exits with 1 when the log cannot be read any more. Raises SettingError."""
    config, kafka = replace(load(EdgeConfig, environ), tokens=load(TokenConfig, environ)), load(KafkaConfig, environ)
    telemetry = load(TelemetryConfig, environ)
    start_logging(f"edge-{port or config.port}", telemetry.log)
    tracer = tracer_of("edge", telemetry.trace)
    config.cell_key_bytes()
    config.home(kafka.replies)
    open_access(config)
    check_certificate(config)
    store = opened_store(load(StoreConfig, environ))
    spans = RequestSpans("edge", tracer) if tracer else None
    around = Surroundings(KafkaLog(kafka), store, kafka.sizes, Codec(), spans=spans)
    publish(around.log, around.codec)
    process = EdgeProcess(config, around, config.port if port is None else port)
    gc.collect()
    gc.freeze()  # what is here stays: looking through it again and again would hold up every stream
    process.run()
    store.close()
    if process.failure is not None:
        sys.exit(1)
