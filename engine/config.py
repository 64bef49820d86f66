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
    ops: str = setting(
        "LANEWAY_OPS", default="auto", doc="what the model runs on: cpu (C++), reference (torch), or auto"
    )
    dtype: str = setting(
        "LANEWAY_DTYPE",
        default="auto",
        doc="float32, bfloat16, int8 (weights alone), or auto: bfloat16 where the CPU multiplies it, else float32",
    )
    drain_s: float = setting(
        "LANEWAY_REPLICA_DRAIN", default=10.0, doc="seconds a replica may finish its replies in at SIGTERM"
    )
    max_running: int = setting("LANEWAY_MAX_RUNNING", default=16, doc="replies a replica runs at once")
    step_tokens: int = setting("LANEWAY_STEP_TOKENS", default=512, doc="tokens a step computes at most")
    step_s: float = setting(
        "LANEWAY_STEP_TIME", default=0.2, doc="seconds a step should take; a long prompt is cut to fit"
    )
    kv_blocks: int = setting(
        "LANEWAY_KV_BLOCKS", default=0, doc="blocks of 16 tokens for keys and values; 0: as LANEWAY_KV_MEMORY allows"
    )
    kv_memory: float = setting(
        "LANEWAY_KV_MEMORY", default=0.1, doc="share of the free memory for keys and values, read at the start"
    )
    scripted_rate: float = setting("LANEWAY_SCRIPTED_RATE", default=0.0, doc="its tokens/s of each reply; 0: no limit")

    def __post_init__(self) -> None:
        for key, word, known in (
            ("LANEWAY_REPLICA", self.replica, ("model", "scripted")),
            ("LANEWAY_OPS", self.ops, ("auto", "cpu", "reference")),
            ("LANEWAY_DTYPE", self.dtype, ("auto", "float32", "bfloat16", "int8")),
        ):
            if word not in known:
                raise SettingError(f"{key}={word!r}: expected {' or '.join(known)}")
        for key, value, least in (
            ("LANEWAY_THREADS", self.threads, 0),
            ("LANEWAY_KV_BLOCKS", self.kv_blocks, 0),
            ("LANEWAY_MAX_RUNNING", self.max_running, 1),
            ("LANEWAY_STEP_TOKENS", self.step_tokens, 1),
        ):
            if value < least:
                raise SettingError(f"{key}={value}: expected {least} or more")
        if self.step_s <= 0:
            raise SettingError(f"LANEWAY_STEP_TIME={self.step_s}: expected more than 0")
        if not 0 < self.kv_memory < 1:
            raise SettingError(f"LANEWAY_KV_MEMORY={self.kv_memory}: expected a share between 0 and 1")

    @property
    def torch_threads(self) -> int:
        return self.threads or os.cpu_count() or 1
