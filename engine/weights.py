"""A model folder to weights: `model.gguf`, or `config.json` with `model.safetensors`.

Out: one config and one naming of the tensors, every name and shape checked; and a hash of the files, which tells
replicas with other weights apart.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from engine.errors import UnsupportedModel
from engine.gguf_file import GgufFile
from engine.model_config import ModelConfig

_SUPPORTED_CONFIG = {
    "model_type": "llama",
    "hidden_act": "silu",
    "rope_scaling": None,
    "rope_parameters": None,
    "attention_bias": False,
    "mlp_bias": False,
}
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Weights:
    """`tensors` by Hugging Face's names; `digest` is 16 hex digits. `dtype` is what a model is to hold them in: the
    tensors have it already, but are float32 for int8, which only linears become.
    """

    config: ModelConfig
    tensors: dict[str, Tensor]
    digest: str
    dtype: torch.dtype = torch.float32


def load_weights(folder: Path, dtype: torch.dtype = torch.float32) -> Weights:
    """Raises UnsupportedModel, naming file, tensor and what is supported."""
    path = folder / "model.gguf"
    if path.exists():
        source = GgufFile(path)
        config = source.config()
        tensors = source.tensors(config)
        files = [path]
    else:
        files = [folder / "config.json", folder / "model.safetensors"]
        if not all(file.exists() for file in files):
            raise UnsupportedModel(f"{folder}: neither model.gguf nor config.json and model.safetensors")
        path = files[1]
        config = read_config(files[0])
        tensors = load_file(path)
        if config.tied:
            tensors.pop("lm_head.weight", None)
    _check(path, config, tensors)
    held = torch.float32 if dtype == torch.int8 else dtype
    return Weights(config, {name: tensor.to(held) for name, tensor in tensors.items()}, _digest(files), dtype)


def read_config(path: Path) -> ModelConfig:
    """The config of a Hugging Face folder. Raises UnsupportedModel for what the model here does not compute."""
    fields: dict[str, Any] = json.loads(path.read_bytes())
    for key, supported in _SUPPORTED_CONFIG.items():
        if fields.get(key, supported) != supported:
            raise UnsupportedModel(f"{path}: {key} is {fields[key]!r}; supported: {supported!r}")
    try:
        heads, hidden = fields["num_attention_heads"], fields["hidden_size"]
        return ModelConfig(
            vocabulary=fields["vocab_size"],
            hidden=hidden,
            intermediate=fields["intermediate_size"],
            layers=fields["num_hidden_layers"],
            heads=heads,
            kv_heads=fields.get("num_key_value_heads", heads),
            head_dim=fields.get("head_dim") or hidden // heads,
            rope_theta=fields.get("rope_theta", 10000.0),
            epsilon=fields["rms_norm_eps"],
            context=fields["max_position_embeddings"],
            tied=fields.get("tie_word_embeddings", False),
        )
    except KeyError as error:
        raise UnsupportedModel(f"{path}: no {error.args[0]}") from None


def _check(path: Path, config: ModelConfig, tensors: dict[str, Tensor]) -> None:
    shapes = config.shapes()
    for name in sorted(shapes.keys() ^ tensors.keys()):
        raise UnsupportedModel(f"{path}: tensor {name} is {'missing' if name in shapes else 'not part of a Llama'}")
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != shapes[name]:
            raise UnsupportedModel(f"{path}: tensor {name} has shape {tuple(tensor.shape)}, expected {shapes[name]}")
        if tensor.dtype not in _FLOATS:
            raise UnsupportedModel(f"{path}: tensor {name} has type {tensor.dtype}; supported: {_FLOATS}")


def _digest(files: list[Path]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for path in files:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
