"""What is done to each row by itself: norm, rotation, activation."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """[rows, hidden] -> the same. Source: Zhang and Sennrich, 2019."""
    wide = x.float()
    scale = torch.sqrt(wide.square().sum(-1, keepdim=True) / wide.shape[-1] + epsilon)
    return (wide / scale).to(x.dtype) * weight


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turns [rows, heads, dim] by each row's angles [rows, dim / 2]; the two halves of a head are the pairs."""
    first, second = x.chunk(2, dim=-1)
    cosine, sine = cosine[:, None], sine[:, None]
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1).to(x.dtype)
