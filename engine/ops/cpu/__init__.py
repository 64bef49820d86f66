"""The ops in C++, compiled for this CPU at their first use. Their shapes are checked in ops.cpp."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.batch import Batch
from engine.draw import Draw
from engine.errors import OpsUnavailable
from engine.ops.cpu.build import built
from schemas.prefix import BLOCK_TOKENS

_LOW_63_BITS = (1 << 63) - 1


class CpuOps:
    """A layer's cache is [kv heads, blocks, 16 * dim], within a block as paged.h says.

    Raises OpsUnavailable where there is no compiler, or no CPU that the ops are written for.
    """

    tiled: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16, torch.int8)

    def __init__(self) -> None:
        library = built()
        try:
            torch.ops.load_library(library.path)  # type: ignore[no-untyped-call]
        except OSError as error:
            raise OpsUnavailable(
                f"{library.path} cannot be used: {error}; delete it to have it compiled anew"
            ) from None
        self.name = f"cpu-{library.name}"
        self._ops = torch.ops.laneway

    def cache_shape(self, blocks: int, kv_heads: int, dim: int) -> tuple[int, ...]:
        return kv_heads, blocks, BLOCK_TOKENS * dim

    def add_rms_norm(self, x: Tensor, added: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        normed, total = self._ops.add_rms_norm.default(x, added, weight, epsilon)
        return normed, total

    def rope_and_cache(
        self, qkv: Tensor, rotary: tuple[Tensor, Tensor], batch: Batch, keys: Tensor, values: Tensor
    ) -> Tensor:
        queries: Tensor = self._ops.rope_and_cache.default(
            qkv, *rotary, batch.positions, batch.slot_mapping, keys, values
        )
        return queries

    def paged_attention(self, queries: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        where = batch.query_start_loc, batch.seq_lens, batch.block_table
        out: Tensor = self._ops.paged_attention.default(queries, keys, values, *where)
        return out

    def tiled_linear(
        self, x: Tensor, weight: Tensor, scales: Tensor | None, out_dtype: torch.dtype, gated: bool
    ) -> Tensor:
        out: Tensor = self._ops.tiled_linear.default(x, weight, scales, out_dtype, gated)
        return out

    def sample(self, logits: Tensor, draws: list[Draw]) -> list[int]:
        by = [draw.sampling for draw in draws]
        temperatures = torch.tensor(
            [0.0 if one.greedy else one.sampling.temperature for one in draws], dtype=torch.double
        )
        top_ps = torch.tensor([one.top_p for one in by], dtype=torch.double)
        words = [one.top_k for one in by], [_signed(one.seed) for one in by], [draw.position for draw in draws]
        ids: Tensor = self._ops.sample.default(
            logits.contiguous(), temperatures, top_ps, *(torch.tensor(column, dtype=torch.long) for column in words)
        )
        return ids.tolist()


def _signed(seed: int) -> int:
    """The same 64 bits as torch has them."""
    return (seed & _LOW_63_BITS) - (seed & ~_LOW_63_BITS)
