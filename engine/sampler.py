"""Logits to token ids, without a generator: each random number is a hash of where it is used.

In: float32 logits [sequences, vocabulary], and per sequence its sampling, the place of the token in its reply, counted
from 0, and the reply's ids so far. Out: one id each. A row's id depends on that row alone, so neither the batch nor a
restart changes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from engine.runner import Logprobs
from schemas.events import Sampling

_MASK = 0xFFFFFFFF
# A sort of the whole vocabulary costs more than the model: few draws look beyond the first 64.
_FIRST_LOOKS = (64, 1024)
# Divided by less, a logit is infinite in float32; no other token has a chance left long before.
_COLDEST = 1e-5

Word = TypeVar("Word", int, Tensor)


@dataclass(frozen=True, slots=True)
class Draw:
    """What a token is drawn by; `output` are the reply's ids before it, however often it was cut."""

    sampling: Sampling
    position: int
    output: Sequence[int] = ()


def sample(logits: Tensor, draws: list[Draw], eos_ids: frozenset[int] = frozenset()) -> list[int]:
    """The next token id of each row: greedy (the lowest id on a tie) at temperature 0, else drawn by its seed.

    Before `min_tokens` no id of `eos_ids` is drawn.
    """
    rows = [_penalised(row, draw, eos_ids) for row, draw in zip(logits, draws, strict=True)]
    return [
        int(row.max(dim=-1).indices)
        if draw.sampling.temperature < _COLDEST
        else _draw(row, draw.sampling, draw.position)
        for row, draw in zip(rows, draws, strict=True)
    ]


def logprobs(logits: Tensor, token_id: int, top: int) -> Logprobs:
    """Of one row, before penalties and temperature: the log probability of `token_id` and of the `top` likeliest ids,
    the likeliest first."""
    all_ids = logits.log_softmax(-1)
    values, ids = all_ids.topk(min(top, logits.shape[-1]))
    return Logprobs(float(all_ids[token_id]), tuple(zip(ids.tolist(), values.tolist(), strict=True)))


def _penalised(logits: Tensor, draw: Draw, eos_ids: frozenset[int]) -> Tensor:
    """One row's logits as the reply so far makes them. Source: OpenAI's API reference; Keskar et al., 2019."""
    sampling = draw.sampling
    held_back = sorted(eos_ids) if draw.position < sampling.min_tokens else []
    penalties = (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty)
    counts = Counter(draw.output) if penalties != (0, 0, 1) else Counter()
    if not held_back and not counts:
        return logits
    logits = logits.clone()
    if counts:
        ids = torch.tensor(list(counts), device=logits.device)
        seen, times = logits[ids], torch.tensor(list(counts.values()), device=logits.device)
        seen = torch.where(seen > 0, seen / sampling.repetition_penalty, seen * sampling.repetition_penalty)
        logits[ids] = seen - sampling.frequency_penalty * times - sampling.presence_penalty
    if held_back:
        logits[held_back] = float("-inf")
    return logits


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
