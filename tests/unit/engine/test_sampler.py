"""Sampling without a generator."""

import math
import struct
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.draw import Draw
from engine.ops import choose
from engine.ops.contract import Ops
from engine.ops.reference.sample import hash32
from engine.sampler import logprobs
from engine.sampler import sample as sample_draws
from schemas.events import Sampling


@pytest.fixture(scope="module", params=["reference", "cpu"])
def ops(request: pytest.FixtureRequest) -> Ops:
    return choose.ops(request.param)


def sample(ops: Ops, logits: torch.Tensor, samplings: list[Sampling], positions: list[int]) -> list[int]:
    return sample_draws(ops, logits, [Draw(*pair) for pair in zip(samplings, positions, strict=True)])


def murmur3(data: bytes) -> int:
    """Austin Appleby's MurmurHash3_x86_32 with seed 0, of whole words."""
    mask, h = 0xFFFFFFFF, 0
    for (k,) in struct.iter_unpack("<I", data):
        k = k * 0xCC9E2D51 & mask
        k = ((k << 15 & mask) | k >> 17) * 0x1B873593 & mask
        h ^= k
        h = ((h << 13 & mask) | h >> 19) * 5 + 0xE6546B64 & mask
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    return h ^ h >> 16


@given(seed=st.integers(0, 2**64 - 1), position=st.integers(0, 2**31), token_id=st.integers(0, 2**31))
def test_the_noise_is_murmur3_of_seed_position_and_token(seed: int, position: int, token_id: int) -> None:
    assert murmur3(b"test") == 0xBA6BD213
    expected = murmur3(struct.pack("<QII", seed, position, token_id))
    assert hash32(seed, position, torch.tensor([token_id])).tolist() == [expected]


def test_greedy_takes_the_lowest_id_on_a_tie(ops: Ops) -> None:
    logits = torch.zeros(2, 50_000)
    logits[0, [7, 49_000]] = 3.0
    assert sample(ops, logits, [Sampling(1, temperature=0)] * 2, [0, 5]) == [7, 0]


@pytest.mark.parametrize("temperature", [1e-6, 1e-300])
def test_next_to_zero_is_greedy_too(ops: Ops, temperature: float) -> None:
    logits = torch.tensor([[0.0, 3.0, 2.999, -1.0]]).expand(50, 4)
    assert set(sample(ops, logits, [Sampling(1, temperature, top_p=0.9)] * 50, list(range(50)))) == {1}


def test_draws_follow_the_softmax(ops: Ops) -> None:
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log().expand(4000, 4) * 2
    drawn = Counter(sample(ops, logits, [Sampling(1, temperature=2.0, seed=3)] * 4000, list(range(4000))))
    assert [drawn[n] / 4000 for n in range(4)] == pytest.approx([0.5, 0.25, 0.125, 0.125], abs=0.02)


@given(seed=st.integers(0, 2**64 - 1), position=st.integers(0, 10_000))
def test_a_row_is_drawn_alike_alone_and_among_others(ops: Ops, seed: int, position: int) -> None:
    logits = torch.randn(3, 500, generator=torch.Generator().manual_seed(seed % 1000))
    drawing = Sampling(1, temperature=0.8, top_p=0.9, top_k=40, seed=seed)
    others = Sampling(1, temperature=1.3, seed=seed ^ 1)
    among = sample(ops, logits, [others, drawing, Sampling(1, temperature=0)], [3, position, 0])
    assert sample(ops, logits[1:2], [drawing], [position]) == among[1:2]


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (0, 0.95), (50, 1.0), (1000, 0.9), (0, 0.9999)])
def test_both_ops_draw_the_same(top_k: int, top_p: float) -> None:
    logits = 4 * torch.randn(200, 20_000, generator=torch.Generator().manual_seed(6))
    draws = [Draw(Sampling(1, 0.5 + n % 5 / 2, top_p, top_k, seed=n << 40 | n), 7 * n) for n in range(200)]
    reference, cpu = (choose.ops(name).sample(logits, draws) for name in ("reference", "cpu"))
    assert reference == cpu
    assert len(set(cpu)) > 100


@given(top_k=st.integers(0, 12), top_p=st.floats(0.01, 1.0), seed=st.integers(0, 2**64 - 1))
def test_only_tokens_that_top_k_and_top_p_keep_are_drawn(ops: Ops, top_k: int, top_p: float, seed: int) -> None:
    logits = torch.randn(12, generator=torch.Generator().manual_seed(seed % 97), dtype=torch.float32)
    order = logits.argsort(descending=True)[: top_k or 12]
    chances = logits[order].softmax(-1)
    kept = order[(chances.cumsum(-1) - chances) < top_p + 1e-6].tolist()
    draws = sample(ops, logits.expand(40, 12), [Sampling(1, 1.0, top_p, top_k, seed)] * 40, list(range(40)))
    assert set(draws) <= set(kept)


@pytest.mark.parametrize("top_k", [0, 2000])
def test_top_p_reaches_beyond_the_first_look(ops: Ops, top_k: int) -> None:
    logits = torch.zeros(200, 3000)
    logits[:, :1500] = 1.0
    draws = sample(ops, logits, [Sampling(1, 1.0, 0.5, top_k, seed=1)] * 200, list(range(200)))
    assert len(set(draws)) > 100
    assert max(draws) < 1500


def drawn(
    ops: Ops, logits: list[float], output: list[int], eos_ids: frozenset[int] = frozenset(), **fields: Any
) -> int:
    draw = Draw(Sampling(9, temperature=0, **fields), len(output), output)
    return sample_draws(ops, torch.tensor([logits]), [draw], eos_ids)[0]


def test_penalties_count_what_the_reply_has_said(ops: Ops) -> None:
    logits, said = [3.0, 2.0, 0.9, -1.0], [0, 0, 1]
    assert drawn(ops, logits, said) == drawn(ops, logits, [], presence_penalty=2.0) == 0
    assert drawn(ops, logits, said, presence_penalty=2.2) == 2
    assert drawn(ops, logits, said, frequency_penalty=0.6) == 0
    assert drawn(ops, logits, said, frequency_penalty=1.2) == 2
    assert drawn(ops, logits, said, repetition_penalty=4.0) == 2
    assert drawn(ops, [-0.2, -0.3], [0], repetition_penalty=2.0) == 1


def test_no_end_is_drawn_before_the_least_tokens(ops: Ops) -> None:
    logits, eos = [1.0, 3.0, 2.0], frozenset({1})
    assert drawn(ops, logits, [0], eos, min_tokens=2) == 2
    assert drawn(ops, logits, [0, 0], eos, min_tokens=2) == 1


def test_a_drawn_id_comes_with_its_log_probability_and_the_likeliest() -> None:
    logits = torch.tensor([0.1, 0.6, 0.3]).log() + 5
    found = logprobs(logits, 0, top=2)
    assert math.exp(found.chosen) == pytest.approx(0.1)
    assert [token_id for token_id, _ in found.top] == [1, 2]
    assert [math.exp(value) for _, value in found.top] == pytest.approx([0.6, 0.3])
    assert logprobs(logits, 0, top=0).top == ()
