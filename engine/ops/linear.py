"""x @ W.T, such that a row's bits do not depend on how many rows there are.

Linear is torch's: oneDNN's packed one, the op behind torch.compile's CPU backend, which is private to torch and known
here only; without it, or for another dtype or device, the ordinary one. TiledLinear is ours.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from engine.ops.contract import Ops

_MIN_ROWS = 2  # oneDNN takes another kernel for one row alone
_ROWS = 16  # MKL adds in an order that depends on how many rows there are: they are always as many
_TOGETHER = 32  # outputs whose weights lie together in a tile
_MOST, _SMALLEST = 127, 1e-30


class Linear:
    """`weight` is [out, in]; maps [rows, in] to [rows, out]. `kernel` says which one computes: packed or torch."""

    def __init__(self, weight: Tensor, *, packed: bool = True) -> None:
        self.kernel = "packed" if packed and weight.device.type == "cpu" and packs(weight.dtype) else "torch"
        self._weight = _pack(weight) if self.kernel == "packed" else weight

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        if self.kernel == "torch":
            whole = pad(x, (0, 0, 0, -rows % _ROWS))
            return torch.cat([linear(some, self._weight) for some in torch.split(whole, _ROWS)])[:rows]
        if rows < _MIN_ROWS:
            x = pad(x, (0, 0, 0, _MIN_ROWS - rows))
        product: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self._weight, None, "none", [], "")
        return product[:rows]


class TiledLinear:
    """The same by `ops`, with weights in float32, or in int8 with one scale for each output; all else is float32."""

    def __init__(self, weight: Tensor, ops: Ops, dtype: torch.dtype = torch.float32) -> None:
        self.kernel = "int8" if dtype == torch.int8 else "tiled"
        self._ops, self._outputs = ops, len(weight)
        weight = pad(weight, (0, 0, 0, -len(weight) % _TOGETHER))
        self._scales = torch.ones(len(weight))
        if dtype == torch.int8:
            self._scales = weight.abs().amax(1).clamp(min=_SMALLEST) / _MOST
            weight = (weight / self._scales[:, None]).round().to(torch.int8)
        self._weight = weight.view(-1, _TOGETHER, weight.shape[1]).transpose(1, 2).contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        product = self._ops.tiled_linear(x, self._weight, self._scales)
        return product if product.shape[1] == self._outputs else product[:, : self._outputs].contiguous()


def packs(dtype: torch.dtype) -> bool:
    """Whether this CPU has a packed linear of this dtype."""
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _pack(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, 64)
    return packed
