"""A Llama as its paper has it, without a cache, batches or blocks: what the engine's logits are compared with."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor


def dense_logits(folder: Path, ids: list[int]) -> Tensor:
    """Logits [ids, vocabulary] in float64, every token attending to all up to itself."""
    config = json.loads((folder / "config.json").read_text())
    weights = {name: tensor.double() for name, tensor in load_file(folder / "model.safetensors").items()}
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    dim, length = config["hidden_size"] // heads, len(ids)
    x = weights["model.embed_tokens.weight"][ids]
    frequency = config["rope_theta"] ** (-2 * torch.arange(dim // 2, dtype=torch.float64) / dim)
    turn = torch.polar(torch.ones(()).double(), torch.arange(length).double()[:, None] * frequency)[:, None]

    def norm(x: Tensor, name: str) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"]).sqrt() * weights[f"{name}.weight"]

    def rotated(x: Tensor) -> Tensor:
        pairs = torch.complex(x[..., : dim // 2], x[..., dim // 2 :]) * turn
        return torch.cat((pairs.real, pairs.imag), dim=-1)

    for n in range(config["num_hidden_layers"]):
        layer = f"model.layers.{n}"
        q, k, v = (
            (norm(x, f"{layer}.input_layernorm") @ weights[f"{layer}.self_attn.{p}_proj.weight"].T).view(
                length, -1, dim
            )
            for p in "qkv"
        )
        k, v = (each.repeat_interleave(heads // kv_heads, dim=1) for each in (rotated(k), v))
        scores = torch.einsum("ihd,jhd->hij", rotated(q), k) / dim**0.5
        scores = scores + torch.full((length, length), float("-inf")).triu(1)
        seen = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).reshape(length, -1)
        x = x + seen @ weights[f"{layer}.self_attn.o_proj.weight"].T
        y = norm(x, f"{layer}.post_attention_layernorm")
        gate, up = (y @ weights[f"{layer}.mlp.{p}_proj.weight"].T for p in ("gate", "up"))
        x = x + (torch.nn.functional.silu(gate) * up) @ weights[f"{layer}.mlp.down_proj.weight"].T
    return norm(x, "model.norm") @ weights["model.embed_tokens.weight"].T
