"""Causal attention over the paged cache in plain torch: products of 8 rows with 64 tokens, joined in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from engine.batch import Batch
from schemas.prefix import BLOCK_TOKENS

CHUNK = 64
_ROWS = 8
_BLOCKS = CHUNK // BLOCK_TOKENS


@dataclass(frozen=True)
class RowBlocks:
    """A batch's rows cut into products of 8 consecutive rows of one sequence, those with the longest past first.

    `rows` [blocks, 8] are the rows of each, past a sequence's end the number of rows; `place` [rows] where a row went,
    in the order of `rows`; `tables` [blocks, chunks, 4] the cache blocks of each 64 tokens; `unseen`, for each chunk,
    [row blocks that reach into it, 1, 8, 1, 64], which of its tokens come after a row.
    """

    rows: Tensor
    place: Tensor
    tables: Tensor
    unseen: list[Tensor]

    @staticmethod
    @lru_cache(maxsize=1)
    def of(batch: Batch) -> RowBlocks:
        """Once a step: all layers share it."""
        starts, lengths = batch.query_start_loc.tolist(), batch.seq_lens.tolist()
        cut: list[tuple[int, int, int, int]] = []
        for sequence, length in enumerate(lengths):
            first, end = starts[sequence], starts[sequence + 1]
            position = length - (end - first)
            for row in range(first, end, _ROWS):
                last = min(position + row - first + _ROWS, length)
                cut.append((-(-last // CHUNK), row, position + row - first, sequence))
        cut.sort(key=lambda block: -block[0])
        chunks, rows, positions, owners = (torch.tensor(column) for column in zip(*cut, strict=True))
        within = torch.arange(_ROWS)
        end_row = batch.query_start_loc[1:].cpu()[owners]
        numbered = rows[:, None] + within
        inside = numbered < end_row[:, None]
        place = torch.empty(starts[-1], dtype=torch.long)
        place[numbered[inside]] = torch.nonzero(inside.flatten()).flatten()
        most = int(chunks[0])
        table = batch.block_table.cpu()
        table = torch.nn.functional.pad(table, (0, max(0, most * _BLOCKS - table.shape[1])))[:, : most * _BLOCKS]
        device = batch.block_table.device
        return RowBlocks(
            torch.where(inside, numbered, starts[-1]).to(device),
            place.to(device),
            table[owners].view(len(cut), most, _BLOCKS).to(device),
            [unseen.to(device) for unseen in _unseen(positions[:, None] + within, chunks)],
        )


def _unseen(positions: Tensor, chunks: Tensor) -> Iterator[Tensor]:
    """For each 64 tokens, which of them come after each row [blocks, 8] of the blocks that have so many chunks."""
    for n in range(int(chunks[0])):
        reach = positions[: int((chunks > n).sum()), None, :, None, None]
        yield torch.arange(n * CHUNK, (n + 1) * CHUNK) > reach


def attention(queries: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
    """Each product is one of 8 rows with 64 tokens counted from position 0, and a row's are added in that order by an
    online softmax (Milakov and Gimelshein, 2018): a chunk that lies beyond a row adds zeros, so neither the rows around
    it nor the length of the batch changes a bit of it. In float32, whatever the cache holds.
    """
    blocks = RowBlocks.of(batch)
    heads, dim = queries.shape[1:]
    kv_heads = keys.shape[2]
    count, group = len(blocks.rows), heads // kv_heads
    padded = torch.nn.functional.pad(queries.float() * dim**-0.5, (0, 0, 0, 0, 0, 1))
    query = padded[blocks.rows].view(count, _ROWS, kv_heads, group, dim).transpose(1, 2)
    query = query.reshape(count, kv_heads, _ROWS * group, dim)
    top = query.new_full((count, kv_heads, _ROWS * group, 1), float("-inf"))
    total, out = torch.zeros_like(top), torch.zeros_like(query)
    for n, unseen in enumerate(blocks.unseen):
        longer = len(unseen)
        key, value = (_gather(cache, blocks.tables[:longer, n]) for cache in (keys, values))
        scores = _multiply(query[:longer], key.transpose(-1, -2))
        scores.view(longer, kv_heads, _ROWS, group, CHUNK).masked_fill_(unseen, float("-inf"))
        highest = torch.maximum(top[:longer], scores.amax(-1, keepdim=True))
        weights, scale = torch.exp(scores - highest), torch.exp(top[:longer] - highest)
        top[:longer] = highest
        total[:longer] = total[:longer] * scale + weights.sum(-1, keepdim=True)
        out[:longer] = out[:longer] * scale + _multiply(weights, value)
    out = (out / total).view(count, kv_heads, _ROWS, group, dim).transpose(1, 2)
    return out.reshape(count * _ROWS, heads * dim)[blocks.place].to(queries.dtype)


def _gather(cache: Tensor, table: Tensor) -> Tensor:
    """[cache blocks, 16, kv heads, dim] at [row blocks, 4] -> float32 [row blocks, kv heads, 64, dim], contiguous."""
    _, tokens, kv_heads, dim = cache.shape
    taken = cache.index_select(0, table.reshape(-1)).view(len(table), -1, tokens, kv_heads, dim)
    return taken.view(len(table), -1, kv_heads, dim).transpose(1, 2).float().contiguous()


def _multiply(left: Tensor, right: Tensor) -> Tensor:
    """A product for each row block and kv head: always many small ones of one shape, never one large one."""
    count, kv_heads = left.shape[:2]
    return torch.bmm(left.flatten(0, 1), right.flatten(0, 1)).view(count, kv_heads, left.shape[2], right.shape[3])
