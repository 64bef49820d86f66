"""Which ops and which dtype a replica computes with, by the CPU that it finds and by its settings."""

from __future__ import annotations

import logging
from functools import cache

import torch

from engine.errors import OpsUnavailable
from engine.ops.contract import Ops
from engine.ops.cpu import CpuOps
from engine.ops.reference import ReferenceOps

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8}

logger = logging.getLogger(__name__)


@cache
def ops(name: str) -> Ops:
    """`reference` or `cpu`; `auto`: the second if it can be had. Raises OpsUnavailable for `cpu`."""
    if name == "reference":
        return ReferenceOps()
    try:
        return CpuOps()
    except OpsUnavailable as error:
        if name == "cpu":
            raise
        logger.warning("%s; the model runs on torch's ops alone, several times slower", error)
        return ReferenceOps()


def name_of(name: str) -> str:
    """Of the dtype that `dtype` gives for it."""
    return name if name != "auto" else str(dtype(name)).removeprefix("torch.")


def dtype(name: str) -> torch.dtype:
    """What weights are held in, by its name; `auto`: bfloat16 where the CPU multiplies it, else float32."""
    if name != "auto":
        return DTYPES[name]
    return torch.bfloat16 if torch.cpu.get_capabilities().get("avx512_bf16", False) else torch.float32
