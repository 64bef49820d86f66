"""The ops in plain torch: the ones that are right everywhere, and that faster ones are compared with."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.batch import Batch
from engine.draw import Draw
from engine.ops.contract import TOGETHER
from engine.ops.linear import Linear, silu_and_mul
from engine.ops.reference.attention import attention
from engine.ops.reference.rows import rms_norm, rotate
from engine.ops.reference.sample import draw
from schemas.prefix import BLOCK_TOKENS


class ReferenceOps:
    """A layer's cache is [blocks, 16, kv heads, dim]."""

    name = "reference"
    tiled: tuple[torch.dtype, ...] = (torch.int8,)

    def cache_shape(self, blocks: int, kv_heads: int, dim: int) -> tuple[int, ...]:
        return blocks, BLOCK_TOKENS, kv_heads, dim

    def add_rms_norm(self, x: Tensor, added: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        total = x + added
        return rms_norm(total, weight, epsilon), total

    def rope_and_cache(
        self, qkv: Tensor, rotary: tuple[Tensor, Tensor], batch: Batch, keys: Tensor, values: Tensor
    ) -> Tensor:
        kv_heads, dim = keys.shape[2:]
        heads = qkv.view(len(qkv), -1, dim)
        angles = rotary[0][batch.positions], rotary[1][batch.positions]
        queries, key, value = torch.split(heads, [heads.shape[1] - 2 * kv_heads, kv_heads, kv_heads], dim=1)
        keys.flatten(0, 1)[batch.slot_mapping] = rotate(key, *angles)
        values.flatten(0, 1)[batch.slot_mapping] = torch.where(value.isfinite(), value, 0)
        return rotate(queries, *angles)

    def paged_attention(self, queries: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        return attention(queries, keys, values, batch)

    def tiled_linear(
        self, x: Tensor, weight: Tensor, scales: Tensor | None, out_dtype: torch.dtype, gated: bool
    ) -> Tensor:
        rows = weight.view(*weight.shape[:2], TOGETHER, -1).transpose(1, 2).reshape(-1, x.shape[1])
        products = Linear(rows if scales is None else rows * scales[:, None])(x)
        if gated:
            halves = products.view(len(x), len(weight), 2, TOGETHER // 2).unbind(2)
            products = silu_and_mul(*halves).flatten(1)
        return products.to(out_dtype)

    def sample(self, logits: Tensor, draws: list[Draw]) -> list[int]:
        return [draw(row, one) for row, one in zip(logits, draws, strict=True)]
