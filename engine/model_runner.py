"""A model that makes tokens: sequences in, one id per sequence out.

Each sequence has a contiguous cache of its own and is computed by itself: no token depends on the neighbours.
"""

from __future__ import annotations

from pathlib import Path

import torch

from engine.errors import ContextExceeded
from engine.model import KeyValueCache, Llama
from engine.sampler import sample
from engine.sequence import Sequence
from engine.weights import Weights, load_weights


class ModelRunner:
    def __init__(self, weights: Weights) -> None:
        some = weights.tensors["model.norm.weight"]
        self._model = Llama(weights)
        self._caches: dict[Sequence, KeyValueCache] = {}
        dtype = str(some.dtype).removeprefix("torch.")
        capability = torch.backends.cpu.get_cpu_capability() if some.device.type == "cpu" else ""
        self._fingerprint = "/".join(
            (
                weights.digest,
                dtype,
                f"{some.device.type}{capability and '-' + capability.lower()}",
                f"torch-{torch.__version__}",
                f"reference-{self._model.kernel}",
                f"{torch.get_num_threads()}-threads",
            )
        )

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype = torch.float32) -> ModelRunner:
        """The model of a folder, on the CPU. Raises UnsupportedModel."""
        return cls(load_weights(folder, dtype))

    @property
    def fingerprint(self) -> str:
        """Weights hash, dtype, device, torch version, kernels and threads, with slashes between."""
        return self._fingerprint

    @torch.inference_mode()
    def step(self, sequences: list[Sequence]) -> list[int]:
        """Raises ContextExceeded before anything is computed of any of them."""
        for sequence in sequences:
            self._admit(sequence)
        logits = torch.stack([self._compute(sequence) for sequence in sequences])
        samplings = [sequence.sampling for sequence in sequences]
        return sample(logits, samplings, [sequence.position for sequence in sequences])

    def release(self, sequence: Sequence) -> None:
        self._caches.pop(sequence, None)
        sequence.num_computed_tokens = 0

    def _admit(self, sequence: Sequence) -> None:
        limit = self._model.config.context
        if sequence.max_tokens > limit:
            raise ContextExceeded(
                f"{sequence.reply}: a prompt of {len(sequence.prompt)} and a reply of {sequence.sampling.max_tokens}"
                f" tokens are more than the model's {limit}"
            )
        if sequence not in self._caches:
            self._caches[sequence] = self._model.new_cache(sequence.max_tokens)
            sequence.num_computed_tokens = 0

    def _compute(self, sequence: Sequence) -> torch.Tensor:
        logits = self._model(
            sequence.tokens(sequence.num_computed_tokens, sequence.num_tokens),
            sequence.num_computed_tokens,
            self._caches[sequence],
        )
        sequence.num_computed_tokens = sequence.num_tokens
        return logits
