"""x @ W.T, such that a row's bits do not depend on how many rows there are: torch's, or the ops' own.

`weight` is [out, in]; maps [rows, in] to [rows, out], of `out_dtype` if that is given, else of x's. Of a `gated` one
the first half of the outputs are gates of the second: silu(gate) * other comes out, [rows, out / 2].
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from engine.ops.contract import TOGETHER, Ops

_ROWS = 16  # torch's libraries add in an order that depends on how many rows there are: they are always as many
_MOST, _SMALLEST = 127, 1e-30


class Linear:
    """By torch."""

    kernel = "torch"

    def __init__(self, weight: Tensor, out_dtype: torch.dtype | None = None, *, gated: bool = False) -> None:
        _check_halves(weight, gated=gated)
        self._weight, self._out_dtype, self._gated, self.inputs = weight, out_dtype, gated, weight.shape[1]

    def weights_of(self, outputs: Tensor) -> Tensor:
        """[outputs, in]: a tied head is the embedding too. Raises IndexError for one that is not there."""
        return self._weight[outputs]

    def __call__(self, x: Tensor) -> Tensor:
        whole = pad(x, (0, 0, 0, -len(x) % _ROWS))
        products = torch.cat([linear(some, self._weight) for some in torch.split(whole, _ROWS)])[: len(x)]
        if self._gated:
            products = silu_and_mul(*products.chunk(2, dim=-1))
        return products.to(self._out_dtype or x.dtype)


class TiledLinear:
    """The same by `ops`, with weights of x's type, or in int8 with one scale for each output."""

    def __init__(
        self,
        weight: Tensor,
        ops: Ops,
        dtype: torch.dtype,
        out_dtype: torch.dtype | None = None,
        *,
        gated: bool = False,
    ) -> None:
        _check_halves(weight, gated=gated)
        self.kernel = "int8" if dtype == torch.int8 else "tiled"
        self._ops, self._out_dtype, self._gated, self.inputs = ops, out_dtype, gated, weight.shape[1]
        self._outputs = len(weight) // 2 if gated else len(weight)
        weight = pad(_gates_beside(weight) if gated else weight, (0, -self.inputs % TOGETHER))
        weight = pad(weight, (0, 0, 0, -len(weight) % TOGETHER))
        self._scales = None
        if dtype == torch.int8:
            self._scales = weight.abs().amax(1).clamp(min=_SMALLEST) / _MOST
            weight = (weight / self._scales[:, None]).round().to(torch.int8)
        in_a_word = 2 if dtype == torch.bfloat16 else 1
        tiles = weight.view(-1, TOGETHER, weight.shape[1] // in_a_word, in_a_word).transpose(1, 2)
        self._weight = tiles.flatten(2).contiguous()

    def weights_of(self, outputs: Tensor) -> Tensor:
        """As Linear's, but not for int8. Raises IndexError, and ValueError of a gated one, whose order is another."""
        if self._gated:
            raise ValueError("weights of a gated linear: expected one that is not gated")
        if any(not 0 <= output < self._outputs for output in outputs.aminmax()):
            raise IndexError(f"outputs {outputs.tolist()}: there are {self._outputs}")
        tiles = self._weight.view(*self._weight.shape[:2], TOGETHER, -1)
        return tiles[outputs // TOGETHER, :, outputs % TOGETHER].flatten(1)[:, : self.inputs].contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[1] != self.inputs:
            raise ValueError(f"rows of {x.shape[1]}: expected {self.inputs}")
        if missing := -self.inputs % TOGETHER:
            x = pad(x, (0, missing))
        product = self._ops.tiled_linear(x, self._weight, self._scales, self._out_dtype or x.dtype, self._gated)
        return product if product.shape[1] == self._outputs else product[:, : self._outputs].contiguous()


def _check_halves(weight: Tensor, *, gated: bool) -> None:
    if gated and len(weight) % 2:
        raise ValueError(f"{len(weight)} gated outputs: expected as many gates as others")


def silu_and_mul(gate: Tensor, other: Tensor) -> Tensor:
    # torch's own silu rounds the last elements of a thread's share differently from the rest.
    return gate / (1 + torch.exp(-gate)) * other


def _gates_beside(weight: Tensor) -> Tensor:
    """Half a panel of gates, then those that they are gates of, and so on."""
    half = TOGETHER // 2
    halves = [pad(one, (0, 0, 0, -len(one) % half)).view(-1, half, one.shape[1]) for one in weight.chunk(2)]
    return torch.stack(halves, dim=1).flatten(0, 2)
