"""A Llama: a batch of rows and the paged cache in, logits of the rows that need them out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.batch import Batch
from engine.model_config import ModelConfig
from engine.ops.contract import Ops
from engine.ops.linear import Linear, TiledLinear
from engine.weights import Weights


class KeyValueCache:
    """Keys and values of all sequences, [layers, blocks, ...]; on a CPU a page takes memory once written.

    Zero at first: what is masked is multiplied by 0, and so must be finite.
    """

    def __init__(self, ops: Ops, config: ModelConfig, num_blocks: int, like: Tensor) -> None:
        shape = (config.layers, *ops.cache_shape(num_blocks, config.kv_heads, config.head_dim))
        self.keys, self.values = (_zeros(shape, like) for _ in range(2))


def _zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    if like.device.type != "cpu":
        return torch.zeros(shape, dtype=like.dtype, device=like.device)
    # torch writes its zeros; the system's come with the page.
    pages = torch.from_numpy(np.zeros(math.prod(shape) * like.itemsize, dtype=np.uint8))
    return pages.view(like.dtype).view(shape)


def rotary_table(length: int, dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines [length, dim / 2] of the rotary embedding. Source: Su et al., 2021."""
    frequencies = theta ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    return angles.cos().float(), angles.sin().float()


@dataclass(frozen=True)
class Shared:
    """What all layers are made with."""

    config: ModelConfig
    ops: Ops
    rotary: tuple[Tensor, Tensor]
    weights: Weights

    def take(self, name: str) -> Tensor:
        """A tensor that is held no more once it is packed."""
        return self.weights.tensors.pop(f"model.layers.{name}.weight")

    def linear(self, *names: str, gated: bool = False) -> Linear | TiledLinear:
        """One linear of several that have the same input."""
        return self.packed(torch.cat([self.take(name) for name in names]), gated=gated)

    def packed(
        self, weight: Tensor, out_dtype: torch.dtype | None = None, *, gated: bool = False
    ) -> Linear | TiledLinear:
        if self.weights.dtype in self.ops.tiled:
            return TiledLinear(weight, self.ops, self.weights.dtype, out_dtype, gated=gated)
        return Linear(weight, out_dtype, gated=gated)


class Attention:
    def __init__(self, shared: Shared, layer: int) -> None:
        self._ops, self._rotary, self._layer = shared.ops, shared.rotary, layer
        self._qkv_proj = shared.linear(*(f"{layer}.self_attn.{name}_proj" for name in "qkv"))
        self._o_proj = shared.linear(f"{layer}.self_attn.o_proj")

    def __call__(self, x: Tensor, batch: Batch, cache: KeyValueCache, needed: Tensor | None) -> Tensor:
        """Writes all rows' keys and values before it reads any: a step's sequences share what it computes."""
        layer = cache.keys[self._layer], cache.values[self._layer]
        queries = self._ops.rope_and_cache(self._qkv_proj(x), self._rotary, batch, *layer)
        seen = self._ops.paged_attention(queries, *layer, batch)
        return self._o_proj(seen if needed is None else seen[needed])


class FeedForward:
    def __init__(self, shared: Shared, layer: int) -> None:
        self._gate_up_proj = shared.linear(*(f"{layer}.mlp.{name}_proj" for name in ("gate", "up")), gated=True)
        self._down_proj = shared.linear(f"{layer}.mlp.down_proj")

    def __call__(self, x: Tensor) -> Tensor:
        return self._down_proj(self._gate_up_proj(x))


class Layer:
    """Takes and gives a residual and what is to be added to it next, so that the sum is made with the norm after it."""

    def __init__(self, shared: Shared, layer: int) -> None:
        self._ops, self._epsilon = shared.ops, shared.config.epsilon
        self._input_norm = shared.take(f"{layer}.input_layernorm")
        self._attention = Attention(shared, layer)
        self._post_attention_norm = shared.take(f"{layer}.post_attention_layernorm")
        self._feed_forward = FeedForward(shared, layer)

    def __call__(
        self, x: Tensor, added: Tensor, batch: Batch, cache: KeyValueCache, needed: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """`needed` are the rows that the result is wanted of, or None for all."""
        normed, x = self._ops.add_rms_norm(x, added, self._input_norm, self._epsilon)
        attended = self._attention(normed, batch, cache, needed)
        x = x if needed is None else x[needed]
        normed, x = self._ops.add_rms_norm(x, attended, self._post_attention_norm, self._epsilon)
        return x, self._feed_forward(normed)


class Llama:
    """Takes the tensors out of `weights` as it packs them, so that they are not held twice."""

    def __init__(self, weights: Weights, ops: Ops) -> None:
        tensors, self.config, self.ops = weights.tensors, weights.config, ops
        embedding = tensors.pop("model.embed_tokens.weight")
        self.device = embedding.device
        cosine, sine = rotary_table(self.config.context, self.config.head_dim, self.config.rope_theta)
        shared = Shared(self.config, ops, (cosine.to(self.device), sine.to(self.device)), weights)
        self._layers = [Layer(shared, n) for n in range(self.config.layers)]
        self._norm = tensors.pop("model.norm.weight")
        self._head = shared.packed(embedding if self.config.tied else tensors.pop("lm_head.weight"), torch.float32)
        embedded_by_head = self.config.tied and weights.dtype != torch.int8
        self._embed = self._head.weights_of if embedded_by_head else embedding.__getitem__
        self.kernels = f"{ops.name}-{self._head.kernel}"

    def new_cache(self, num_blocks: int) -> KeyValueCache:
        return KeyValueCache(self.ops, self.config, num_blocks, self._norm)

    def __call__(self, batch: Batch, cache: KeyValueCache) -> Tensor:
        """Float32 logits [needed rows, vocabulary]; writes the keys and values of all rows."""
        x = self._embed(batch.token_ids)
        added = torch.zeros_like(x)
        *first, last = self._layers
        for layer in first:
            x, added = layer(x, added, batch, cache, None)
        x, added = last(x, added, batch, cache, batch.needed)
        normed, _ = self.ops.add_rms_norm(x, added, self._norm, self.config.epsilon)
        return self._head(normed)
