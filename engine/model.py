"""A Llama: a batch of rows and the paged cache in, logits of the rows that need them out."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from engine.batch import Batch
from engine.model_config import ModelConfig
from engine.ops.linear import Linear
from engine.ops.reference import RowBlocks, attention, rms_norm, rotary_table, rotate, silu_and_mul
from engine.weights import Weights
from schemas.prefix import BLOCK_TOKENS


class KeyValueCache:
    """Keys and values of all sequences, [layers, blocks, 16, kv heads, dim]; on a CPU a page takes memory once written.

    Zero at first: what is masked is multiplied by 0, and so must be finite.
    """

    def __init__(self, config: ModelConfig, num_blocks: int, like: Tensor) -> None:
        shape = (config.layers, num_blocks, BLOCK_TOKENS, config.kv_heads, config.head_dim)
        self.keys, self.values = (_zeros(shape, like) for _ in range(2))

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Puts rows [rows, kv heads, dim] at their slots, block * 16 + place."""
        self.keys[layer].flatten(0, 1)[slots] = keys
        self.values[layer].flatten(0, 1)[slots] = values


def _zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    if like.device.type != "cpu":
        return torch.zeros(shape, dtype=like.dtype, device=like.device)
    # torch writes its zeros; the system's come with the page.
    pages = torch.from_numpy(np.zeros(math.prod(shape) * like.itemsize, dtype=np.uint8))
    return pages.view(like.dtype).view(shape)


class Step:
    """What all layers share of a batch: where rows go, how they are turned, and how attention is cut."""

    def __init__(self, batch: Batch, rotary: tuple[Tensor, Tensor]) -> None:
        self.slots, self.needed = batch.slot_mapping, batch.needed
        self.rotary = rotary[0][batch.positions], rotary[1][batch.positions]
        self.blocks = RowBlocks.of(batch)


class Attention:
    def __init__(self, config: ModelConfig, layer: int, tensors: dict[str, Tensor]) -> None:
        self._layer = layer
        self._heads, self._kv_heads, self._dim = config.heads, config.kv_heads, config.head_dim
        projections = [tensors.pop(f"model.layers.{layer}.self_attn.{name}_proj.weight") for name in "qkv"]
        self._qkv_proj = Linear(torch.cat(projections))
        self._o_proj = Linear(tensors.pop(f"model.layers.{layer}.self_attn.o_proj.weight"))

    def __call__(self, x: Tensor, step: Step, cache: KeyValueCache, needed: Tensor | None) -> Tensor:
        """Writes all rows' keys and values before it reads any: a step's sequences share what it computes."""
        heads = self._qkv_proj(x).view(len(x), -1, self._dim)
        queries, keys, values = torch.split(heads, [self._heads, self._kv_heads, self._kv_heads], dim=1)
        cache.write(self._layer, step.slots, rotate(keys, *step.rotary), values)
        layer = cache.keys[self._layer], cache.values[self._layer]
        seen = attention(rotate(queries, *step.rotary), *layer, step.blocks)
        return self._o_proj(seen if needed is None else seen[needed])


class FeedForward:
    def __init__(self, layer: int, tensors: dict[str, Tensor]) -> None:
        projections = [tensors.pop(f"model.layers.{layer}.mlp.{name}_proj.weight") for name in ("gate", "up")]
        self._gate_up_proj = Linear(torch.cat(projections))
        self._down_proj = Linear(tensors.pop(f"model.layers.{layer}.mlp.down_proj.weight"))

    def __call__(self, x: Tensor) -> Tensor:
        return self._down_proj(silu_and_mul(self._gate_up_proj(x)))


class Layer:
    """`needed` are the rows that its output is wanted of, or None for all."""

    def __init__(self, config: ModelConfig, layer: int, tensors: dict[str, Tensor]) -> None:
        self._epsilon = config.epsilon
        self._input_norm = tensors.pop(f"model.layers.{layer}.input_layernorm.weight")
        self._attention = Attention(config, layer, tensors)
        self._post_attention_norm = tensors.pop(f"model.layers.{layer}.post_attention_layernorm.weight")
        self._feed_forward = FeedForward(layer, tensors)

    def __call__(self, x: Tensor, step: Step, cache: KeyValueCache, needed: Tensor | None) -> Tensor:
        attended = self._attention(rms_norm(x, self._input_norm, self._epsilon), step, cache, needed)
        x = (x if needed is None else x[needed]) + attended
        return x + self._feed_forward(rms_norm(x, self._post_attention_norm, self._epsilon))


class Llama:
    """Takes the tensors out of `weights` as it packs them, so that they are not held twice."""

    def __init__(self, weights: Weights) -> None:
        tensors, self.config = weights.tensors, weights.config
        self._embedding = tensors.pop("model.embed_tokens.weight")
        self._layers = [Layer(self.config, n, tensors) for n in range(self.config.layers)]
        self._norm = tensors.pop("model.norm.weight")
        self._head = Linear(self._embedding if self.config.tied else tensors.pop("lm_head.weight"))
        cosine, sine = rotary_table(self.config.context, self.config.head_dim, self.config.rope_theta)
        self._rotary = cosine.to(self.device), sine.to(self.device)
        self.kernel = self._head.kernel

    @property
    def device(self) -> torch.device:
        return self._embedding.device

    def new_cache(self, num_blocks: int) -> KeyValueCache:
        return KeyValueCache(self.config, num_blocks, self._embedding)

    def __call__(self, batch: Batch, cache: KeyValueCache) -> Tensor:
        """Float32 logits [needed rows, vocabulary]; writes the keys and values of all rows."""
        step = Step(batch, self._rotary)
        x = self._embedding[batch.token_ids]
        *first, last = self._layers
        for layer in first:
            x = layer(x, step, cache, None)
        x = last(x, step, cache, step.needed)
        return self._head(rms_norm(x, self._norm, self.config.epsilon)).float()
