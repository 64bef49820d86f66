"""What a Llama is computed with, beside its linears: the same ops in torch (`reference`) and in C++ (`cpu`).

Each row's bits are the same in a prefill and in a decode: no op's order of summation depends on the number of rows or
on the length of the context. So a reply that is cut and computed again elsewhere goes on with the same tokens.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from engine.batch import Batch
from engine.draw import Draw

TOGETHER = 32  # outputs whose weights lie together in `tiled_linear`


class Ops(Protocol):
    """Tensors are contiguous, of the model's dtype but for `rotary` and `logits`; `name` goes into the fingerprint.

    `tiled`: weights of these dtypes are multiplied by `tiled_linear`, others by torch.
    """

    name: str
    tiled: tuple[torch.dtype, ...]

    def cache_shape(self, blocks: int, kv_heads: int, dim: int) -> tuple[int, ...]:
        """Of one layer's keys, and of its values; what lies where in it only these ops know."""
        ...

    def add_rms_norm(self, x: Tensor, added: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        """x, added [rows, hidden] -> their sum, normed and times `weight`; and the sum. Computed in float32."""
        ...

    def rope_and_cache(
        self, qkv: Tensor, rotary: tuple[Tensor, Tensor], batch: Batch, keys: Tensor, values: Tensor
    ) -> Tensor:
        """[rows, (heads + 2 * kv heads) * dim] -> queries [rows, heads, dim], turned by each row's position.

        Keys, turned too, and values go to the rows' slots of a layer's cache; a value that is not finite becomes 0.
        `rotary`: cosines and sines [context, dim / 2]; the two halves of a head are the pairs. Source: Su et al., 2021.
        """
        ...

    def paged_attention(self, queries: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        """Causal attention of every row over its sequence up to itself, in prefill and decode alike.

        queries [rows, heads, dim]; keys, values: a layer's cache, finite throughout -> [rows, heads * dim].
        """
        ...

    def tiled_linear(
        self, x: Tensor, weight: Tensor, scales: Tensor | None, out_dtype: torch.dtype, gated: bool
    ) -> Tensor:
        """[rows, inputs], [outputs / 32, inputs / p, 32 * p] -> [rows, outputs]; both numbers are multiples of 32.

        Of one output p inputs lie together: two in bfloat16, else one. An int8 weight has float32 `scales` [outputs],
        and x is float32; else x is of the weight's type. Sums are float32: so is what comes out, or of x's type. Of a
        `gated` one the first 16 of 32 outputs are gates of the others: silu(gate) * other, [rows, outputs / 2].
        """
        ...

    def sample(self, logits: Tensor, draws: list[Draw]) -> list[int]:
        """Float32 [rows, vocabulary] -> an id each: the lowest of the likeliest where a draw is greedy, else drawn.

        A drawn id is the argmax of logit / temperature + noise over what top_k, and then top_p among these, keep, ties
        at the threshold included. The noise is Gumbel's, of MurmurHash3 (x86, 32 bits, seed 0) of the words seed low,
        seed high, position, token id: uniform = (hash + 0.5) / 2^32.
        """
        ...
