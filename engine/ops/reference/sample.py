"""A token id from a row of logits, by counter-based noise: each random number is a hash of where it is used."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from engine.draw import Draw
from schemas.events import Sampling

_MASK = 0xFFFFFFFF
# A sort of the whole vocabulary costs more than the model: few draws look beyond the first 64.
_FIRST_LOOKS = (64, 1024)

Word = TypeVar("Word", int, Tensor)


def draw(logits: Tensor, by: Draw) -> int:
    """The next token id of one row: greedy, the lowest id on a tie, or drawn by its seed."""
    return int(logits.max(dim=-1).indices) if by.greedy else _draw(logits, by.sampling, by.position)


def hash32(seed: int, position: int, token_ids: Tensor) -> Tensor:
    """MurmurHash3 (x86, 32 bits, seed 0) of the words seed low, seed high, position, token id; int64 in 0..2^32-1."""
    state = 0
    for word in (seed & _MASK, seed >> 32, position):
        state = _mix(state, word)
    hashed = _mix(torch.full_like(token_ids, state), token_ids) ^ 16
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _MASK
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _MASK
    return hashed ^ hashed >> 16


def _draw(logits: Tensor, sampling: Sampling, position: int) -> int:
    """The Gumbel-max trick: argmax of logit / temperature + noise is a draw from the softmax of the kept tokens."""
    scaled = logits.float() / sampling.temperature
    kept = torch.nonzero(scaled >= _threshold(scaled, sampling)).flatten()
    uniform = (hash32(sampling.seed, position, kept).double() + 0.5) / 2**32
    noisy = scaled[kept].double() - torch.log(-torch.log(uniform))
    return int(kept[noisy.max(dim=-1).indices])


def _threshold(scaled: Tensor, sampling: Sampling) -> Tensor:
    """The lowest logit that top_k, and then top_p among what top_k keeps, let through; ties at it are all kept."""
    vocabulary = scaled.shape[-1]
    top_k = min(sampling.top_k or vocabulary, vocabulary)
    kept = scaled if top_k == vocabulary else scaled.topk(top_k).values
    if sampling.top_p >= 1:
        return kept.min()
    total = kept.logsumexp(-1)
    for look in (*_FIRST_LOOKS, top_k):
        top = kept.topk(min(look, top_k)).values
        before = (top - total).exp().cumsum(-1).roll(1)
        before[0] = 0
        inside = int((before < sampling.top_p).sum())
        if inside < len(top):
            break
    return top[max(inside, 1) - 1]


def _mix(state: Word, word: Word) -> Word:
    word = word * 0xCC9E2D51 & _MASK
    word = (word << 15 | word >> 17) & _MASK
    state = state ^ (word * 0x1B873593 & _MASK)
    state = (state << 13 | state >> 19) & _MASK
    return state * 5 + 0xE6546B64 & _MASK
