"""A row's bits do not depend on the rows around it: few rows would not show a break, so there are a thousand."""

import pytest
import torch

from engine.batch import Batch
from engine.ops.linear import Linear
from engine.ops.reference import RowBlocks, attention, rms_norm, silu_and_mul
from engine.sequence import Chunk, Sequence, blocks_for
from schemas.events import Sampling
from schemas.ids import ReplyId


@pytest.mark.parametrize("kernel", ["packed", "torch"])
@pytest.mark.parametrize(("width", "out"), [(64, 128), (576, 960), (1536, 576)])
def test_a_linear_row_is_the_same_in_any_number_of_rows(kernel: str, width: int, out: int) -> None:
    generator = torch.Generator().manual_seed(1)
    weight, x = torch.randn(out, width, generator=generator), torch.randn(1024, width, generator=generator)
    layer = Linear(weight, packed=kernel == "packed")
    whole = layer(x)
    torch.testing.assert_close(whole, x @ weight.T, atol=1e-2, rtol=1e-3)
    for rows in (1, 2, 3, 5, 7, 9, 16, 17, 100, 225):
        for first in (0, 1, 1024 - rows):
            assert torch.equal(layer(x[first : first + rows]), whole[first : first + rows]), (rows, first)


class Paged:
    """Sequences of random rows whose keys and values lie in shuffled blocks of one cache."""

    def __init__(self, lengths: tuple[int, ...], heads: int = 6, kv_heads: int = 2, dim: int = 32) -> None:
        generator = torch.Generator().manual_seed(2)
        counts = [blocks_for(length) for length in lengths]
        order = torch.randperm(sum(counts) + 3, generator=generator).tolist()
        self.tables = [[order.pop() for _ in range(count)] for count in counts]
        self.queries = [torch.randn(length, heads, dim, generator=generator) for length in lengths]
        self.past = torch.randn(2, sum(counts) + 3, 16, kv_heads, dim, generator=generator)

    def attend(self, *rows: tuple[int, int, int]) -> list[torch.Tensor]:
        """The rows `start` to `end` of each sequence named, computed in one batch."""
        chunks = []
        for n, start, end in rows:
            ids = tuple(range(len(self.queries[n])))
            of = Sequence(ReplyId(str(n)), 1, ids, Sampling(1), block_table=self.tables[n], num_computed_tokens=start)
            chunks.append(Chunk(of, end - start))
        batch = Batch.of(chunks, torch.device("cpu"))
        queries = torch.cat([self.queries[n][start:end] for n, start, end in rows])
        out = attention(queries, self.past[0], self.past[1], RowBlocks.of(batch))
        return list(out.split([end - start for _, start, end in rows]))

    def dense(self, n: int, which: int) -> torch.Tensor:
        """Keys (0) or values (1) of a sequence, [kv heads, length, dim]."""
        return self.past[which][self.tables[n]].flatten(0, 1)[: len(self.queries[n])].transpose(0, 1)


def test_attention_of_a_row_is_the_same_in_prefill_and_decode_and_among_any_others() -> None:
    paged = Paged((600, 65, 1024, 1, 300))
    whole = {n: paged.attend((n, 0, len(queries)))[0] for n, queries in enumerate(paged.queries)}
    mixes = [
        [(0, 599, 600)],
        [(0, 64, 65), (1, 63, 64), (2, 0, 1)],
        [(3, 0, 1), (2, 1000, 1024), (0, 511, 514), (4, 7, 300)],
        [(n, len(whole[n]) - 1, len(whole[n])) for n in (1, 0, 4, 3, 2)],
        [(2, 130, 1024), (0, 7, 507), (1, 0, 65)],
    ]
    for mix in mixes:
        for (n, start, end), got in zip(mix, paged.attend(*mix), strict=True):
            assert torch.equal(got, whole[n][start:end]), (mix, n)


def test_attention_is_the_softmax_of_the_past() -> None:
    paged = Paged((100, 33), heads=4, dim=16)
    for n, got in enumerate(paged.attend((0, 0, 100), (1, 0, 33))):
        expected = torch.nn.functional.scaled_dot_product_attention(
            paged.queries[n].transpose(0, 1),
            paged.dense(n, 0).repeat_interleave(2, dim=0),
            paged.dense(n, 1).repeat_interleave(2, dim=0),
            is_causal=True,
        )
        torch.testing.assert_close(got, expected.transpose(0, 1).reshape(-1, 64), atol=1e-5, rtol=1e-5)


def test_norm_and_activation_of_a_row_do_not_depend_on_the_others() -> None:
    x, weight = torch.randn(1024, 576, generator=torch.Generator().manual_seed(4)), torch.rand(576)
    normed, active = rms_norm(x, weight, 1e-5), silu_and_mul(x)
    for rows in (1, 2, 3, 17, 1001):
        assert torch.equal(rms_norm(x[:rows], weight, 1e-5), normed[:rows])
        assert torch.equal(silu_and_mul(x[:rows]), active[:rows])
