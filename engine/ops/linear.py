"""x @ W.T, such that a row's bits do not depend on how many rows there are.

Source: oneDNN's packed float32 linear, the op behind torch.compile's CPU backend. It is private to torch, so this class
is the only place that knows it; without it, or for another dtype or device, the ordinary linear takes its place.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

# One row alone takes another kernel than many: oneDNN's for 1, MKL's for fewer than 11.
_MIN_ROWS = {"packed": 2, "torch": 16}


class Linear:
    """`weight` is [out, in]; maps [rows, in] to [rows, out]. `kernel` says which one computes: packed or torch."""

    def __init__(self, weight: Tensor, *, packed: bool = True) -> None:
        self.kernel = "packed" if packed and _packs(weight) else "torch"
        self._min_rows = _MIN_ROWS[self.kernel]
        self._weight = _pack(weight) if self.kernel == "packed" else weight

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        if rows < self._min_rows:
            return self._multiply(pad(x, (0, 0, 0, self._min_rows - rows)))[:rows]
        return self._multiply(x)

    def _multiply(self, x: Tensor) -> Tensor:
        if self.kernel == "torch":
            return linear(x, self._weight)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, None, "none", [], "")
        return product


def _packs(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu" and weight.dtype == torch.float32 and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _pack(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, 64)
    return packed
