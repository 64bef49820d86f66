"""Logits to token ids, without a generator: each random number is a hash of where it is used.

In: float32 logits [sequences, vocabulary], and per sequence its sampling, the place of the token in its reply, counted
from 0, and the reply's ids so far. Out: one id each. A row's id depends on that row alone, so neither the batch nor a
restart changes it.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from engine.draw import Draw
from engine.ops.contract import Ops
from engine.runner import Logprobs


def sample(ops: Ops, logits: Tensor, draws: list[Draw], eos_ids: frozenset[int] = frozenset()) -> list[int]:
    """The next token id of each row, as the reply so far makes its logits; before `min_tokens` none of `eos_ids`."""
    return ops.sample(_penalised(logits, draws, eos_ids), draws)


def logprobs(logits: Tensor, token_id: int, top: int) -> Logprobs:
    """Of one row, before penalties and temperature: the log probability of `token_id` and of the `top` likeliest ids,
    the likeliest first."""
    all_ids = logits.log_softmax(-1)
    values, ids = all_ids.topk(min(top, logits.shape[-1]))
    return Logprobs(float(all_ids[token_id]), tuple(zip(ids.tolist(), values.tolist(), strict=True)))


def _penalised(logits: Tensor, draws: list[Draw], eos_ids: frozenset[int]) -> Tensor:
    """The rows themselves, or a copy if any reply changes its own."""
    concerned = [n for n, draw in enumerate(draws) if _held_back(draw, eos_ids) or _penalties(draw)]
    if concerned:
        logits = logits.clone()
    for n in concerned:
        _penalise(logits[n], draws[n])
        logits[n, _held_back(draws[n], eos_ids)] = float("-inf")
    return logits


def _held_back(draw: Draw, eos_ids: frozenset[int]) -> list[int]:
    return sorted(eos_ids) if draw.position < draw.sampling.min_tokens else []


def _penalties(draw: Draw) -> bool:
    by = draw.sampling
    return bool(draw.output) and (by.presence_penalty, by.frequency_penalty, by.repetition_penalty) != (0, 0, 1)


def _penalise(row: Tensor, draw: Draw) -> None:
    """Changes one row's logits of ids that the reply has said. Source: OpenAI's API reference; Keskar et al., 2019."""
    if not _penalties(draw):
        return
    by, counts = draw.sampling, Counter(draw.output)
    ids = torch.tensor(list(counts), device=row.device)
    seen, times = row[ids], torch.tensor(list(counts.values()), device=row.device)
    seen = torch.where(seen > 0, seen / by.repetition_penalty, seen * by.repetition_penalty)
    row[ids] = seen - by.frequency_penalty * times - by.presence_penalty
