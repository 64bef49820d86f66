"""Settings of `laneway up`: what it runs on this machine, and where."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from schemas.settings import SettingError, setting
from topics.store.config import SCHEME, StoreConfig

REPLICAS = ("model", "scripted")
SQLITE, CASSANDRA = "sqlite", "cassandra"


@dataclass(frozen=True)
class UpConfig:
    data: Path = setting("LANEWAY_DATA", default=Path(".laneway"), doc="folder of records, keys, logs, models and jars")
    kafka: str = setting("LANEWAY_KAFKA", default="", doc="your cluster, host:port,...; without it a broker is started")
    kafka_port: int = setting("LANEWAY_KAFKA_PORT", default=9092, doc="the broker's port, if free; 0: any")
    kafka_heap: str = setting("LANEWAY_KAFKA_HEAP", default="512m", doc="the broker's Java heap; less starts faster")
    edge_port: int = setting(
        "LANEWAY_EDGE_PORT", default=8701, doc="the first edge's port, if free; the second's is next"
    )
    origins: tuple[str, ...] = setting(
        "LANEWAY_ORIGINS", default=(), doc="origins of pages that CORS lets in, beside its own edges"
    )
    model: str = setting("LANEWAY_MODEL", default="", doc="model folder; without it SmolLM2-135M-Instruct is fetched")
    replica: str = setting("LANEWAY_REPLICA", default="model", doc="what a replica runs: model, or scripted for tests")
    replicas: int = setting("LANEWAY_REPLICAS", default=1, doc="how many replicas to start")
    mini: bool = setting("LANEWAY_MINI", default=False, doc="run a replica of pool mini too, as --mini does")
    store: str = setting(
        "LANEWAY_STORE",
        default=SQLITE,
        doc="sqlite or cassandra, both in the data folder; or another file, or cassandra://host:port/keyspace",
    )
    cassandra_port: int = setting("LANEWAY_CASSANDRA_PORT", default=9042, doc="Cassandra's port, if free; 0: any")
    cassandra_heap: str = setting("LANEWAY_CASSANDRA_HEAP", default="1g", doc="Cassandra's Java heap")
    stages: tuple[str, ...] = setting(
        "LANEWAY_STAGES",
        default=("intake", "router", "settlement", "history", "supervisor"),
        doc="the stages to run",
    )
    split_stages: bool = setting("LANEWAY_SPLIT_STAGES", default=False, doc="give each stage a process of its own")
    start_timeout: float = setting("LANEWAY_START_TIMEOUT", default=180.0, doc="seconds for everything to be ready")

    def __post_init__(self) -> None:
        if self.replica not in REPLICAS:
            raise SettingError(f"LANEWAY_REPLICA={self.replica!r}: expected {' or '.join(REPLICAS)}")
        if self.replicas < 1:
            raise SettingError(f"LANEWAY_REPLICAS={self.replicas}: expected at least 1")
        if self.store.startswith(SCHEME):
            StoreConfig(store=self.store)
        elif "://" in self.store or (self.store not in (SQLITE, CASSANDRA) and not set("./\\") & set(self.store)):
            raise SettingError(
                f"LANEWAY_STORE={self.store!r}: expected sqlite, cassandra, a file such as ./{SQLITE}.db, or "
                f"{SCHEME}host:port/keyspace"
            )
        for key, heap in (("LANEWAY_KAFKA_HEAP", self.kafka_heap), ("LANEWAY_CASSANDRA_HEAP", self.cassandra_heap)):
            if not re.fullmatch(r"\d+[kmgKMG]", heap):
                raise SettingError(f"{key}={heap!r}: expected a size such as 512m")


@dataclass(frozen=True)
class KeysConfig:
    data: Path = setting("LANEWAY_DATA", default=Path(".laneway"), doc="folder that keys.json lies in")
    keys: str = setting("LANEWAY_KEYS", default="", doc="the keys file, if it lies elsewhere")
