"""Settings of a replica."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from schemas.settings import SettingError, setting


@dataclass(frozen=True)
class ReplicaConfig:
    model: Path = setting("LANEWAY_MODEL", default=Path(".laneway/models/smollm2-135m-instruct"), doc="model folder")
    replica: str = setting("LANEWAY_REPLICA", default="model", doc="what a replica runs: model, or scripted for tests")
    pool: str = setting("LANEWAY_POOL", default="main", doc="the pool this replica belongs to")
    threads: int = setting("LANEWAY_THREADS", default=0, doc="CPU threads of the model; 0: one for each core")
    drain_s: float = setting(
        "LANEWAY_REPLICA_DRAIN", default=10.0, doc="seconds a replica may finish its replies in at SIGTERM"
    )
    scripted_capacity: int = setting(
        "LANEWAY_SCRIPTED_CAPACITY", default=64, doc="replies a scripted replica runs at once"
    )
    scripted_rate: float = setting("LANEWAY_SCRIPTED_RATE", default=0.0, doc="its tokens/s of each reply; 0: no limit")

    def __post_init__(self) -> None:
        if self.replica not in ("model", "scripted"):
            raise SettingError(f"LANEWAY_REPLICA={self.replica!r}: expected model or scripted")
        if self.threads < 0:
            raise SettingError(f"LANEWAY_THREADS={self.threads}: expected 0 or more")

    @property
    def torch_threads(self) -> int:
        return self.threads or os.cpu_count() or 1
