"""A random Llama of two layers as a Hugging Face folder: the same weights for the same seed.

Its tokenizer is that of `tests/tiny_tokenizer.py`.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.tiny_tokenizer import CONTEXT, SPECIAL, write_tokenizer

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 256 + len(SPECIAL),
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": True,
}


def write_tiny_llama(folder: Path, seed: int = 0) -> Path:
    """A whole model folder with weights drawn from `seed`."""
    write_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file(_tensors(torch.Generator().manual_seed(seed)), folder / "model.safetensors")
    return folder


def _tensors(generator: torch.Generator) -> dict[str, torch.Tensor]:
    def draw(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) / math.sqrt(columns)

    # A small embedding and strong layers: else the tied output layer says the last token again and again.
    tensors = {"model.embed_tokens.weight": draw(259, 64) * 2, "model.norm.weight": torch.ones(64)}
    for n in range(2):
        layer = f"model.layers.{n}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{layer}.{norm}.weight"] = torch.rand(64, generator=generator) + 0.5
        for name, rows, columns, scale in (
            ("self_attn.q_proj", 64, 64, 1),
            ("self_attn.k_proj", 32, 64, 1),
            ("self_attn.v_proj", 32, 64, 1),
            ("self_attn.o_proj", 64, 64, 4),
            ("mlp.gate_proj", 128, 64, 1),
            ("mlp.up_proj", 128, 64, 1),
            ("mlp.down_proj", 64, 128, 4),
        ):
            tensors[f"{layer}.{name}.weight"] = draw(rows, columns) * scale
    return tensors
