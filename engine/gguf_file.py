"""A GGUF file as llama.cpp writes it: metadata, and weights as float32 under Hugging Face's names.

llama.cpp stores the rows of the query and key projections in the order of its own rotary embedding; here they are put
back, so that the model knows one order only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from engine.errors import UnsupportedModel
from engine.model_config import ModelConfig

SUPPORTED_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_1")

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class _Reader(gguf.GGUFReader):
    """Slices a plain array: a hundred thousand slices of a memmap, one for each token and merge, take seconds."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, np.asarray(value) if name == "data" else value)


class GgufFile:
    """An open file; tensors are read when they are asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader = _Reader(path)

    def field(self, key: str, default: Any = None) -> Any:
        """The metadata value of `key`. Raises UnsupportedModel when it is missing and there is no default."""
        found = self._reader.get_field(key)
        if found is None and default is None:
            raise UnsupportedModel(f"{self._path}: no metadata {key}")
        return default if found is None else found.contents()

    def config(self) -> ModelConfig:
        architecture = self.field("general.architecture")
        if architecture != "llama":
            raise UnsupportedModel(f"{self._path}: architecture {architecture!r}; supported: 'llama'")
        scaling = self.field("llama.rope.scaling.type", "none")
        if scaling != "none":
            raise UnsupportedModel(f"{self._path}: rope scaling {scaling!r}; supported: 'none'")
        hidden, heads = self.field("llama.embedding_length"), self.field("llama.attention.head_count")
        return ModelConfig(
            vocabulary=len(self.field("tokenizer.ggml.tokens")),
            hidden=hidden,
            intermediate=self.field("llama.feed_forward_length"),
            layers=self.field("llama.block_count"),
            heads=heads,
            kv_heads=self.field("llama.attention.head_count_kv", heads),
            head_dim=self.field("llama.attention.key_length", hidden // heads),
            rope_theta=self.field("llama.rope.freq_base", 10000.0),
            epsilon=self.field("llama.attention.layer_norm_rms_epsilon"),
            context=self.field("llama.context_length"),
            tied=all(tensor.name != "output.weight" for tensor in self._reader.tensors),
        )

    def tensors(self, config: ModelConfig) -> dict[str, Tensor]:
        """All weights in float32."""
        return {self._name(tensor.name): self._read(tensor, config) for tensor in self._reader.tensors}

    def _name(self, name: str) -> str:
        layer, stem = "", name
        if name.startswith("blk."):
            _, number, stem = name.split(".", 2)
            layer = f"model.layers.{number}."
        stem, _, suffix = stem.rpartition(".")
        if stem not in _NAMES or suffix != "weight":
            raise UnsupportedModel(f"{self._path}: tensor {name}; supported: the weights {', '.join(_NAMES)}")
        return f"{layer}{_NAMES[stem]}.weight"

    def _read(self, tensor: gguf.ReaderTensor, config: ModelConfig) -> Tensor:
        kind = tensor.tensor_type.name
        if kind not in SUPPORTED_TYPES:
            supported = ", ".join(SUPPORTED_TYPES)
            raise UnsupportedModel(f"{self._path}: tensor {tensor.name} has type {kind}; supported: {supported}")
        weight = torch.from_numpy(np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32))
        if tensor.name.endswith("attn_q.weight"):
            return _rows_in_order(weight, config.heads)
        if tensor.name.endswith("attn_k.weight"):
            return _rows_in_order(weight, config.kv_heads)
        return weight


def _rows_in_order(weight: Tensor, heads: int) -> Tensor:
    """Undoes llama.cpp's `permute`: within a head, its rows alternate between the two halves of ours."""
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns).contiguous()
