"""A Llama: token ids and their cache in, logits of the last token out."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.model_config import ModelConfig
from engine.ops.linear import Linear
from engine.ops.reference import CHUNK, attention, rms_norm, rotary_table, rotate, silu_and_mul
from engine.weights import Weights


class KeyValueCache:
    """One sequence's keys and values, contiguous: [layers, kv heads, capacity, dim], zero where nothing is written."""

    def __init__(self, config: ModelConfig, length: int, like: Tensor) -> None:
        capacity = -(-length // CHUNK) * CHUNK
        shape = (config.layers, config.kv_heads, capacity, config.head_dim)
        self.keys = torch.zeros(shape, dtype=like.dtype, device=like.device)
        self.values = torch.zeros_like(self.keys)

    def write(self, layer: int, start: int, keys: Tensor, values: Tensor) -> None:
        """Puts [rows, kv heads, dim] at positions `start` and on."""
        end = start + keys.shape[0]
        self.keys[layer, :, start:end] = keys.transpose(0, 1)
        self.values[layer, :, start:end] = values.transpose(0, 1)


class Attention:
    def __init__(self, config: ModelConfig, layer: int, tensors: dict[str, Tensor]) -> None:
        self._layer = layer
        self._heads, self._kv_heads, self._dim = config.heads, config.kv_heads, config.head_dim
        projections = [tensors.pop(f"model.layers.{layer}.self_attn.{name}_proj.weight") for name in "qkv"]
        self._qkv_proj = Linear(torch.cat(projections))
        self._o_proj = Linear(tensors.pop(f"model.layers.{layer}.self_attn.o_proj.weight"))

    def __call__(self, x: Tensor, start: int, cache: KeyValueCache, rotary: tuple[Tensor, Tensor]) -> Tensor:
        rows = x.shape[0]
        heads = self._qkv_proj(x).view(rows, -1, self._dim)
        queries, keys, values = torch.split(heads, [self._heads, self._kv_heads, self._kv_heads], dim=1)
        cache.write(self._layer, start, rotate(keys, *rotary), values)
        seen = attention(rotate(queries, *rotary), cache.keys[self._layer], cache.values[self._layer], start)
        return self._o_proj(seen)


class FeedForward:
    def __init__(self, layer: int, tensors: dict[str, Tensor]) -> None:
        projections = [tensors.pop(f"model.layers.{layer}.mlp.{name}_proj.weight") for name in ("gate", "up")]
        self._gate_up_proj = Linear(torch.cat(projections))
        self._down_proj = Linear(tensors.pop(f"model.layers.{layer}.mlp.down_proj.weight"))

    def __call__(self, x: Tensor) -> Tensor:
        return self._down_proj(silu_and_mul(self._gate_up_proj(x)))


class Layer:
    def __init__(self, config: ModelConfig, layer: int, tensors: dict[str, Tensor]) -> None:
        self._epsilon = config.epsilon
        self._input_norm = tensors.pop(f"model.layers.{layer}.input_layernorm.weight")
        self._attention = Attention(config, layer, tensors)
        self._post_attention_norm = tensors.pop(f"model.layers.{layer}.post_attention_layernorm.weight")
        self._feed_forward = FeedForward(layer, tensors)

    def __call__(self, x: Tensor, start: int, cache: KeyValueCache, rotary: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self._attention(rms_norm(x, self._input_norm, self._epsilon), start, cache, rotary)
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
        self._rotary = cosine.to(self._embedding.device), sine.to(self._embedding.device)
        self.kernel = self._head.kernel

    def new_cache(self, length: int) -> KeyValueCache:
        """An empty cache for a sequence of at most `length` tokens."""
        return KeyValueCache(self.config, length, self._embedding)

    def __call__(self, token_ids: list[int], start: int, cache: KeyValueCache) -> Tensor:
        """Float32 logits [vocabulary] after the last of `token_ids`, which lie at positions `start` and on."""
        end = start + len(token_ids)
        rotary = self._rotary[0][start:end], self._rotary[1][start:end]
        x = self._embedding[torch.tensor(token_ids, device=self._embedding.device)]
        for layer in self._layers:
            x = layer(x, start, cache, rotary)
        return self._head(rms_norm(x[-1:], self._norm, self.config.epsilon))[0].float()
