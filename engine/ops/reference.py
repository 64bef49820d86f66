"""The ops of a Llama in plain torch: the ones that are right everywhere, and that faster ones are compared with.

Each row's bits are the same in a prefill and in a decode: no op's order of summation depends on the number of rows or
on the length of the context. So a reply that is cut and computed again elsewhere goes on with the same tokens.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor
from torch.nn.functional import pad

CHUNK = 64
_ROWS = 8
_SLAB = 256


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """[rows, hidden] -> the same; computed in float32. Source: Zhang and Sennrich, 2019."""
    wide = x.float()
    scale = torch.sqrt(wide.square().sum(-1, keepdim=True) / wide.shape[-1] + epsilon)
    return (wide / scale).to(x.dtype) * weight


def silu_and_mul(x: Tensor) -> Tensor:
    """[rows, 2 * width], gate then up -> [rows, width]."""
    gate, up = x.chunk(2, dim=-1)
    # torch's own silu rounds the last elements of a thread's share differently from the rest.
    return gate / (1 + torch.exp(-gate)) * up


def rotary_table(length: int, dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines [length, dim / 2] of the rotary embedding. Source: Su et al., 2021."""
    frequencies = theta ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turns [rows, heads, dim] by each row's angles [rows, dim / 2]; the two halves of a head are the pairs."""
    first, second = x.chunk(2, dim=-1)
    cosine, sine = cosine[:, None], sine[:, None]
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1).to(x.dtype)


def attention(queries: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
    """Causal attention of the rows at positions `start` and on, over everything up to each.

    queries [rows, heads, dim]; keys, values [kv heads, capacity, dim], capacity a multiple of 64 and zero where
    nothing is written yet -> [rows, heads * dim]. The work is cut into products of 8 rows and 64 tokens, counted from
    position 0, and their sums are added in order: what lies beyond a row adds zeros at the end, whatever is asked.
    """
    rows, heads, dim = queries.shape
    kv_heads, group = keys.shape[0], heads // keys.shape[0]
    seen = []
    for first in range(0, rows, _SLAB):
        slab = queries[first : first + _SLAB]
        blocks = -(-len(slab) // _ROWS)
        padded = pad(slab * dim**-0.5, (0, 0, 0, 0, 0, blocks * _ROWS - len(slab)))
        query = padded.view(blocks, _ROWS, kv_heads, group, dim).permute(2, 0, 1, 3, 4)
        out = _attend(query.reshape(kv_heads, blocks, 1, _ROWS * group, dim), keys, values, start + first)
        out = out.view(kv_heads, blocks, _ROWS, group, dim).permute(1, 2, 0, 3, 4)
        seen.append(out.reshape(blocks * _ROWS, heads * dim)[: len(slab)])
    return torch.cat(seen)


def _attend(query: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
    """query [kv heads, blocks, 1, rows of a block * group, dim] -> the same without the 1."""
    blocks, group, device = query.shape[1], query.shape[3] // _ROWS, keys.device
    chunks = -(-min(start + blocks * _ROWS, keys.shape[1]) // CHUNK)
    keys = keys[:, : chunks * CHUNK].view(len(keys), 1, chunks, CHUNK, -1)
    values = values[:, : chunks * CHUNK].view(len(keys), 1, chunks, CHUNK, -1)
    position = torch.arange(start, start + blocks * _ROWS, device=device).repeat_interleave(group)
    unseen = torch.arange(chunks * CHUNK, device=device).view(chunks, 1, CHUNK) > position.view(blocks, 1, -1, 1)
    scores = (query @ keys.transpose(-1, -2)).masked_fill_(unseen, float("-inf"))
    weights = torch.exp(scores - scores.amax(dim=(2, 4), keepdim=True))
    total = reduce(torch.add, weights.sum(-1, keepdim=True).unbind(2))
    return reduce(torch.add, (weights @ values).unbind(2)) / total
