"""A random Llama of two layers as a Hugging Face folder: the same weights for the same seed.

Its tokenizer has one token per byte and three special ones, so every text is a prompt and every id is a byte.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONTEXT = 512
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
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


def write_tokenizer(folder: Path) -> Path:
    """`tokenizer.json` and `laneway.json` alone: enough for everything but the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({word: n for n, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"name": "tiny", "context": CONTEXT, "template": "chatml", "eos": ["<|im_end|>"], "system": "Be brief."}
    (folder / "laneway.json").write_text(json.dumps(settings))
    return folder


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
