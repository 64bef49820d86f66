"""A step's rows as tensors: the tokens of all sequences, one after the other, and where each one's past lies.

In: chunks. Out: what a varlen paged attention takes, by the names that vLLM and FlashAttention give it.
"""

from __future__ import annotations

from collections.abc import Sequence as Chunks
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.sequence import Chunk
from schemas.prefix import BLOCK_TOKENS


@dataclass(frozen=True, eq=False)
class Batch:
    """All int64: `token_ids`, `positions`, `slot_mapping` [rows], the last saying where a row's key and value go
    (block * 16 + place); `query_start_loc` [sequences + 1], the first row of each; `seq_lens` [sequences], its tokens
    up to the last of its rows; `block_table` [sequences, blocks], padded with 0; `needed` [n], rows to get logits of.
    """

    token_ids: Tensor
    positions: Tensor
    slot_mapping: Tensor
    query_start_loc: Tensor
    seq_lens: Tensor
    block_table: Tensor
    needed: Tensor

    @classmethod
    def of(cls, chunks: Chunks[Chunk], device: torch.device) -> Batch:
        """The rows of `chunks` in their order; logits are needed of the last row of each that samples."""
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        starts, needed = [0], list[int]()
        for chunk in chunks:
            sequence, first = chunk.sequence, chunk.sequence.num_computed_tokens
            places = range(first, first + chunk.num_tokens)
            token_ids += sequence.tokens(places.start, places.stop)
            positions += places
            table = sequence.block_table
            slots += [table[n // BLOCK_TOKENS] * BLOCK_TOKENS + n % BLOCK_TOKENS for n in places]
            starts.append(len(token_ids))
            if chunk.samples:
                needed.append(len(token_ids) - 1)
        lengths = [chunk.sequence.num_computed_tokens + chunk.num_tokens for chunk in chunks]
        widest = max(len(chunk.sequence.block_table) for chunk in chunks)
        tables = [[*c.sequence.block_table, *[0] * (widest - len(c.sequence.block_table))] for c in chunks]
        columns = (token_ids, positions, slots, starts, lengths, tables, needed)
        return cls(*(torch.tensor(column, dtype=torch.long, device=device) for column in columns))
