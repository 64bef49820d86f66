"""A row's bits do not depend on the rows around it: few rows would not show a break, so there are a thousand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from engine.batch import Batch
from engine.draw import Draw
from engine.model import rotary_table
from engine.ops import choose
from engine.ops.contract import Ops
from engine.ops.linear import Linear, TiledLinear
from engine.sequence import Chunk, Sequence, blocks_for
from schemas.events import Sampling
from schemas.ids import ReplyId

CLOSE = {torch.float32: {"atol": 1e-5, "rtol": 1e-5}, torch.bfloat16: {"atol": 3e-2, "rtol": 2e-2}}
LINEARS = [
    (True, torch.float32),
    (True, torch.bfloat16),
    (True, torch.int8),
    (False, torch.float32),
    (False, torch.bfloat16),
]
NOT_TURNED = torch.ones(1024, 64), torch.zeros(1024, 64)


@pytest.fixture(scope="module", autouse=True)
def threads() -> Iterator[int]:
    """Two: which of them computes a row must not show."""
    before, threads = torch.get_num_threads(), 2
    torch.set_num_threads(threads)
    yield threads
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=["reference", "cpu"])
def ops(request: pytest.FixtureRequest) -> Ops:
    return choose.ops(request.param)


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    dtype: torch.dtype = request.param
    return dtype


@pytest.mark.parametrize(("width", "out"), [(24, 40), (64, 259), (576, 960), (1536, 576)])
@pytest.mark.parametrize(("tiled", "held"), LINEARS)
def test_a_row_of_a_linear_is_the_same_in_any_number_of_rows(
    ops: Ops, tiled: bool, held: torch.dtype, width: int, out: int
) -> None:
    x_type = torch.float32 if held == torch.int8 else held
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(out, width, generator=generator).to(x_type)
    x = torch.randn(1024, width, generator=generator).to(x_type)
    layer = TiledLinear(weight, ops, held, torch.float32) if tiled else Linear(weight, torch.float32)
    whole = layer(x)
    scales = weight.abs().amax(1, keepdim=True) / 127
    exact = (weight / scales).round() * scales if held == torch.int8 else weight
    rounded_by_torch = held == torch.bfloat16 and not (tiled and ops.name.startswith("cpu"))
    closeness = {"atol": 1e-2, "rtol": 8e-3 if rounded_by_torch else 1e-4}
    torch.testing.assert_close(whole, x.float() @ exact.float().T, **closeness)
    assert (whole - x.float() @ weight.float().T).abs().max() < 0.06 * width**0.5
    for rows in (1, 2, 3, 5, 7, 10, 16, 17, 32, 33, 100, 225, 257):
        for first in (0, 1, 1024 - rows):
            assert torch.equal(layer(x[first : first + rows]), whole[first : first + rows]), (rows, first)


@pytest.mark.parametrize("width", [5, 32, 72, 1536])
@pytest.mark.parametrize(("tiled", "held"), LINEARS)
def test_a_gated_linear_is_silu_of_its_first_half_times_the_other(
    ops: Ops, tiled: bool, held: torch.dtype, width: int
) -> None:
    x_type = torch.float32 if held == torch.int8 else held
    generator = torch.Generator().manual_seed(1)
    weight, x = (torch.randn(n, 576, generator=generator).to(x_type) for n in (2 * width, 300))
    layer = TiledLinear(weight, ops, held, gated=True) if tiled else Linear(weight, gated=True)
    plain = TiledLinear(weight, ops, held, torch.float32) if tiled else Linear(weight, torch.float32)
    gate, other = plain(x).chunk(2, dim=-1)
    whole = layer(x)
    assert whole.dtype == x_type
    expected = torch.nn.functional.silu(gate) * other
    torch.testing.assert_close(whole.float(), expected, **CLOSE[x_type])
    for rows in (0, 1, 2, 17, 33, 225):
        assert torch.equal(layer(x[5 : 5 + rows]), whole[5 : 5 + rows]), rows


@pytest.mark.parametrize("gate", [-3e38, -1e30, -100.0, -20.0, 0.0, 20.0, 1e30])
@pytest.mark.parametrize(
    ("held", "out"), [(torch.float32, None), (torch.bfloat16, None), (torch.bfloat16, torch.float32)]
)
def test_a_gate_that_is_shut_lets_nothing_by(ops: Ops, held: torch.dtype, out: torch.dtype | None, gate: float) -> None:
    weight = torch.zeros(64, 32, dtype=held)
    weight[:32, 0], weight[32:, 1] = gate, 1e-3
    made = TiledLinear(weight, ops, held, out, gated=True)(torch.ones(3, 32, dtype=held)).double()
    expected = torch.nn.functional.silu(weight[0, 0].double()) * weight[32, 1].double()
    torch.testing.assert_close(made, expected.expand(3, 32), atol=1e-30, rtol=2e-2 if held == torch.bfloat16 else 1e-5)


def test_a_gated_linear_of_an_odd_half_is_refused(cpu_ops: Ops) -> None:
    weight = torch.zeros(35, 32)
    for made in (lambda: TiledLinear(weight, cpu_ops, torch.float32, gated=True), lambda: Linear(weight, gated=True)):
        with pytest.raises(ValueError, match="35 gated outputs"):
            made()
    with pytest.raises(ValueError, match="weights of a gated linear"):
        TiledLinear(weight[:34], cpu_ops, torch.float32, gated=True).weights_of(torch.tensor([0]))


@pytest.mark.parametrize("held", [torch.float32, torch.bfloat16], ids=str)
def test_a_linear_gives_the_weights_of_some_outputs_as_they_were(ops: Ops, held: torch.dtype) -> None:
    weight, some = torch.randn(259, 72).to(held), torch.tensor([258, 0, 31, 32, 100, 0])
    for layer in (TiledLinear(weight, ops, held), Linear(weight)):
        assert torch.equal(layer.weights_of(some), weight[some])


def test_what_a_linear_gives_is_rounded_from_float32(cpu_ops: Ops) -> None:
    generator = torch.Generator().manual_seed(1)
    weight, x = (torch.randn(64, 576, generator=generator).bfloat16() for _ in range(2))
    wide, narrow = (TiledLinear(weight, cpu_ops, torch.bfloat16, out)(x) for out in (torch.float32, None))
    assert narrow.dtype == torch.bfloat16 and torch.equal(wide.bfloat16(), narrow)


class Paged:
    """Sequences of random rows whose keys and values lie in shuffled blocks of one layer's cache."""

    def __init__(
        self,
        ops: Ops,
        dtype: torch.dtype,
        lengths: tuple[int, ...],
        heads: int,
        kv_heads: int,
        dim: int,
        in_common: tuple[tuple[int, int, int], ...] = (),
    ) -> None:
        """`in_common`: sequence, an earlier one and how many blocks of it are also the first one's own."""
        generator = torch.Generator().manual_seed(2)
        self.ops, self._kv_heads, self._dim = ops, kv_heads, dim
        counts = [blocks_for(length) for length in lengths]
        order = torch.randperm(sum(counts) + 3, generator=generator).tolist()
        self.tables = [[order.pop() for _ in range(count)] for count in counts]
        width = (heads + 2 * kv_heads) * dim
        self.rows = [torch.randn(length, width, generator=generator).to(dtype) for length in lengths]
        for n, other, blocks in in_common:
            self.tables[n][:blocks], self.rows[n][: 16 * blocks] = (
                self.tables[other][:blocks],
                self.rows[other][: 16 * blocks],
            )
        shape = ops.cache_shape(sum(counts) + 3, kv_heads, dim)
        self._keys, self._values = torch.zeros(2, *shape, dtype=dtype)
        turned = (table[:, : dim // 2].contiguous() for table in NOT_TURNED)
        self._rotary = next(turned), next(turned)
        self.attend(*((n, 0, length) for n, length in enumerate(lengths)))

    def attend(self, *rows: tuple[int, int, int]) -> list[Tensor]:
        """The rows `start` to `end` of each sequence named, computed in one batch."""
        chunks = []
        for n, start, end in rows:
            ids = tuple(range(len(self.rows[n])))
            of = Sequence(ReplyId(str(n)), 1, ids, Sampling(1), block_table=self.tables[n], num_computed_tokens=start)
            chunks.append(Chunk(of, end - start))
        batch = Batch.of(chunks, torch.device("cpu"))
        qkv = torch.cat([self.rows[n][start:end] for n, start, end in rows])
        queries = self.ops.rope_and_cache(qkv, self._rotary, batch, self._keys, self._values)
        out = self.ops.paged_attention(queries, self._keys, self._values, batch)
        return list(out.split([end - start for _, start, end in rows]))

    def dense(self, n: int) -> Tensor:
        """What torch's own attention makes of a sequence, in float32."""
        heads = self.rows[n].float().view(len(self.rows[n]), -1, self._dim).transpose(0, 1)
        queries, keys, values = heads.split([len(heads) - 2 * self._kv_heads, self._kv_heads, self._kv_heads])
        group = len(queries) // self._kv_heads
        past = (one.repeat_interleave(group, dim=0) for one in (keys, values))
        out = torch.nn.functional.scaled_dot_product_attention(queries, *past, is_causal=True)
        return out.transpose(0, 1).reshape(len(self.rows[n]), -1)


def test_attention_of_a_row_is_the_same_in_prefill_and_decode_and_among_any_others(
    ops: Ops, dtype: torch.dtype
) -> None:
    paged = Paged(ops, dtype, (600, 65, 1024, 1, 300), heads=6, kv_heads=2, dim=64)
    whole = {n: paged.attend((n, 0, len(rows)))[0] for n, rows in enumerate(paged.rows)}
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


def test_attention_over_a_prompt_in_common_is_the_same_as_alone(ops: Ops, dtype: torch.dtype) -> None:
    lengths = (330, 330, 280, 281, 256, 700, 330, 90, 20)
    in_common = ((1, 0, 16), (2, 0, 16), (3, 0, 17), (4, 0, 9), (5, 4, 14), (6, 0, 3), (7, 5, 5))
    paged = Paged(ops, dtype, lengths, heads=6, kv_heads=2, dim=64, in_common=in_common)
    alone = [paged.attend((n, 0, length))[0] for n, length in enumerate(lengths)]
    for n, got in enumerate(alone):
        torch.testing.assert_close(got.float(), paged.dense(n), **CLOSE[dtype])
    last = [(n, length - 1, length) for n, length in enumerate(lengths)]
    for mix in (last, last[::-1], last[3:] + last[:3], [*last[:2], (2, 270, 280), *last[3:5], (5, 100, 700)]):
        for (n, start, end), got in zip(mix, paged.attend(*mix), strict=True):
            assert torch.equal(got, alone[n][start:end]), (mix, n)


@pytest.mark.parametrize("left", [float("nan"), float("inf")])
def test_what_another_reply_left_in_a_block_is_not_seen(ops: Ops, dtype: torch.dtype, left: float) -> None:
    clean, used = (Paged(ops, dtype, (70,), heads=6, kv_heads=2, dim=64) for _ in range(2))
    rows = used.rows[0][20:].clone()
    used.rows[0][20:] = left
    used.attend((0, 0, 70))
    for end in (19, 20):
        assert torch.equal(used.attend((0, end - 1, end))[0], clean.attend((0, end - 1, end))[0]), end
    used.rows[0][20:] = rows
    assert torch.equal(used.attend((0, 0, 70))[0], clean.attend((0, 0, 70))[0])


@pytest.mark.parametrize(("heads", "kv_heads"), [(3, 3), (4, 2), (9, 3), (4, 1), (7, 1), (8, 1)])
@pytest.mark.parametrize("dim", [16, 64, 128])
def test_attention_is_the_softmax_of_the_past(
    ops: Ops, dtype: torch.dtype, heads: int, kv_heads: int, dim: int
) -> None:
    paged = Paged(ops, dtype, (100, 33), heads, kv_heads, dim)
    for n, got in enumerate(paged.attend((0, 0, 100), (1, 0, 33))):
        torch.testing.assert_close(got.float(), paged.dense(n), **CLOSE[dtype])


@pytest.mark.parametrize("rise", [0.02, 0.08, 0.3])
def test_scores_that_rise_are_weighed_as_all_others(ops: Ops, dtype: torch.dtype, rise: float) -> None:
    """From some 64 tokens to the next by less than a power of two that sums could hold, and by more."""
    paged = Paged(ops, dtype, (500,), 3, 1, 64)
    towards = torch.ones(64) / 8
    paged.rows[0][:, :192] = towards.repeat(3) * 8
    paged.rows[0][:, 192:256] += (rise * torch.arange(500)[:, None] * towards).to(dtype)
    close = {"atol": 2e-4, "rtol": 2e-4} if dtype == torch.float32 else CLOSE[dtype]  # scores are in the hundreds
    torch.testing.assert_close(paged.attend((0, 0, 500))[0].float(), paged.dense(0), **close)


@pytest.mark.parametrize("times", [1e8, 1e16])
def test_of_huge_scores_the_highest_takes_all(ops: Ops, dtype: torch.dtype, times: float) -> None:
    """They are rounded by more than 1, but all that is weighed is how far they are apart."""
    paged = Paged(ops, dtype, (200,), 6, 2, 64)
    paged.rows[0][:, : 6 * 64] *= times
    paged.attend((0, 0, 200))
    for n in range(1, 200, 37):
        seen, values = paged.attend((0, n, n + 1))[0].view(6, 64), paged.rows[0][: n + 1, 8 * 64 :].view(-1, 2, 64)
        for head, got in enumerate(seen):
            assert (values[:, head // 3] == got).all(1).any(), (n, head)


def test_queries_and_keys_are_turned_by_their_positions(ops: Ops, dtype: torch.dtype) -> None:
    """Turned alike, what they are to each other depends on how far they are apart: shifted rows attend alike."""
    rotary = rotary_table(256, 64, 10000.0)
    near, far = Paged(ops, dtype, (70,), 3, 1, 64), Paged(ops, dtype, (70,), 3, 1, 64)
    plain = near.attend((0, 0, 70))[0]
    near._rotary, far._rotary = rotary, (rotary[0][100:], rotary[1][100:])
    turned, shifted = (paged.attend((0, 0, 70))[0] for paged in (near, far))
    torch.testing.assert_close(shifted.float(), turned.float(), **CLOSE[dtype])
    assert (turned - plain).abs().max() > 0.1


def test_the_norm_of_a_row_does_not_depend_on_the_others(ops: Ops, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(4)
    x, added = torch.randn(2, 1024, 576, generator=generator).to(dtype)
    weight = torch.rand(576, generator=generator).to(dtype)
    normed, total = ops.add_rms_norm(x, added, weight, 1e-5)
    for first in (0, 1, 500):
        for rows in (1, 2, 3, 17, 501):
            some = slice(first, first + rows)
            again, sums = ops.add_rms_norm(x[some], added[some], weight, 1e-5)
            assert torch.equal(again, normed[some]) and torch.equal(sums, total[some])


def test_the_norm_is_that_of_torch(ops: Ops, dtype: torch.dtype) -> None:
    x, added = (10 * torch.randn(2, 40, 576, generator=torch.Generator().manual_seed(5))).to(dtype)
    normed, total = ops.add_rms_norm(x, added, torch.ones(576, dtype=dtype), 1e-5)
    assert torch.equal(total, x + added)
    expected = torch.nn.functional.rms_norm(total.float(), (576,), eps=1e-5)
    torch.testing.assert_close(normed.float(), expected, **CLOSE[dtype])


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("top_p", [0.5, 1])
@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_a_token_of_odd_logits_is_one_of_the_vocabulary(
    cpu_ops: Ops, temperature: float, top_p: float, odd: float
) -> None:
    sampling = Sampling(1, temperature=temperature, top_p=top_p, top_k=5, seed=3)
    draws = [Draw(sampling, 0, ()) for _ in range(2)]
    logits = torch.full((2, 100), odd)
    logits[1, 7:] = 1
    assert all(0 <= token < 100 for token in cpu_ops.sample(logits, draws))


def test_rows_of_another_width_and_outputs_that_are_not_there_are_refused(cpu_ops: Ops) -> None:
    layer = TiledLinear(torch.ones(40, 72), cpu_ops, torch.float32)
    with pytest.raises(ValueError, match="rows of 65: expected 72"):
        layer(torch.ones(2, 65))
    for output in (-1, 40):
        with pytest.raises(IndexError, match="there are 40"):
            layer.weights_of(torch.tensor([3, output]))


def test_what_lies_outside_the_cache_is_refused(cpu_ops: Ops) -> None:
    paged = Paged(cpu_ops, torch.float32, (40,), 3, 1, 64)
    paged.tables[0][1] = 99
    with pytest.raises(RuntimeError, match="slot 1584 of 96"):
        paged.attend((0, 0, 40))
    with pytest.raises(RuntimeError, match="block 99 of 6"):
        paged.attend((0, 39, 40))
    half = torch.zeros(1, 64, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="expected Float"):
        cpu_ops.add_rms_norm(half, half, half[0], 1e-5)
