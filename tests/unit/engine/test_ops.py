"""A row's bits do not depend on the rows around it: few rows would not show a break, so there are a thousand."""

import pytest
import torch

from engine.ops.linear import Linear
from engine.ops.reference import attention, rms_norm, silu_and_mul


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


def test_attention_of_a_row_is_the_same_in_prefill_and_decode() -> None:
    generator = torch.Generator().manual_seed(2)
    queries = torch.randn(600, 6, 32, generator=generator)
    keys, values = torch.zeros(2, 640, 32), torch.zeros(2, 640, 32)
    keys[:, :600], values[:, :600] = torch.randn(2, 2, 600, 32, generator=generator)
    whole = attention(queries, keys, values, 0)
    for start, rows in ((599, 1), (64, 1), (63, 1), (0, 1), (511, 3), (130, 200), (7, 500)):
        end = start + rows
        past = torch.zeros_like(keys), torch.zeros_like(values)
        past[0][:, :end], past[1][:, :end] = keys[:, :end], values[:, :end]
        assert torch.equal(attention(queries[start:end], *past, start), whole[start:end]), (start, rows)


def test_attention_is_the_softmax_of_the_past() -> None:
    queries, keys, values = torch.randn(3, 100, 4, 16, generator=torch.Generator().manual_seed(3))
    expected = torch.nn.functional.scaled_dot_product_attention(
        queries.transpose(0, 1), keys.transpose(0, 1), values.transpose(0, 1), is_causal=True
    )
    past = [torch.nn.functional.pad(x.transpose(0, 1), (0, 0, 0, 28)) for x in (keys, values)]
    got = attention(queries, past[0], past[1], 0)
    torch.testing.assert_close(got, expected.transpose(0, 1).reshape(100, 64), atol=1e-5, rtol=1e-5)


def test_norm_and_activation_of_a_row_do_not_depend_on_the_others() -> None:
    x, weight = torch.randn(1024, 576, generator=torch.Generator().manual_seed(4)), torch.rand(576)
    normed, active = rms_norm(x, weight, 1e-5), silu_and_mul(x)
    for rows in (1, 2, 3, 17, 1001):
        assert torch.equal(rms_norm(x[:rows], weight, 1e-5), normed[:rows])
        assert torch.equal(silu_and_mul(x[:rows]), active[:rows])
