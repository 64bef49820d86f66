"""A model that makes tokens: chunks of sequences in, one id for each that is computed to its end.

The invariant: a row's bits depend on its sequence's tokens alone, not on the step's other rows, on how a prompt was
cut or on what the cache held, so every token is the one that its sequence would get alone.
"""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from engine.batch import Batch
from engine.draw import Draw
from engine.model import Llama
from engine.ops.contract import Ops
from engine.ops.reference import ReferenceOps
from engine.runner import Sampled
from engine.sampler import logprobs, sample
from engine.sequence import Chunk, Sequence, blocks_for
from engine.weights import Weights, load_weights
from schemas.events import Sampling
from schemas.ids import ReplyId

PROBED_ROWS = (1, 2, 17, 225)
REFERENCE = ReferenceOps()

logger = logging.getLogger(__name__)


class ModelRunner:
    """`eos_ids` are what `min_tokens` holds back."""

    def __init__(
        self, weights: Weights, num_blocks: int, eos_ids: frozenset[int] = frozenset(), ops: Ops = REFERENCE
    ) -> None:
        self._model = Llama(weights, ops)
        self._cache = self._model.new_cache(num_blocks)
        self._eos_ids = eos_ids
        self.num_blocks = num_blocks
        self.fingerprint = self._fingerprint(weights.digest, weights.dtype)

    @classmethod
    def load(
        cls,
        folder: Path,
        num_blocks: int,
        eos_ids: frozenset[int] = frozenset(),
        dtype: torch.dtype = torch.float32,
        ops: Ops = REFERENCE,
    ) -> ModelRunner:
        """The model of a folder, on the CPU. Raises UnsupportedModel."""
        return cls(load_weights(folder, dtype), num_blocks, eos_ids, ops)

    @torch.inference_mode()
    def compute(self, chunks: list[Chunk]) -> list[Sampled]:
        logits = self._model(Batch.of(chunks, self._model.device), self._cache)
        sequences = [chunk.sequence for chunk in chunks if chunk.samples]
        draws = [Draw(one.sampling, one.position, one.output) for one in sequences]
        ids = sample(self._model.ops, logits, draws, self._eos_ids)
        return [
            Sampled(token_id, None if (top := one.sampling.top_logprobs) is None else logprobs(row, token_id, top))
            for token_id, row, one in zip(ids, logits, sequences, strict=True)
        ]

    def _fingerprint(self, digest: str, dtype: torch.dtype) -> str:
        """Weights hash, dtype, device, torch version, kernels, threads and the probe, with slashes between."""
        device = self._model.device.type
        capability = torch.backends.cpu.get_cpu_capability() if device == "cpu" else ""
        invariant = rows_are_invariant(self._model)
        if not invariant:
            logger.warning("rows depend on their batch here: a continued reply may differ from an unbroken one")
        return "/".join(
            (
                digest,
                str(dtype).removeprefix("torch."),
                f"{device}{capability and '-' + capability.lower()}",
                f"torch-{torch.__version__}",
                self._model.kernels,
                f"{torch.get_num_threads()}-threads",
                "invariant" if invariant else "variant",
            )
        )


@torch.inference_mode()
def rows_are_invariant(model: Llama) -> bool:
    """Whether keys, values and logits of a prompt are, bit by bit, the same computed at once, in pieces, and beside
    another sequence on the same blocks."""
    length = min(PROBED_ROWS[-1], model.config.context)
    ids = tuple((7 + 31 * n) % model.config.vocabulary for n in range(length))
    caches = [model.new_cache(blocks_for(length)) for _ in range(2)]
    logits = []
    for cache, cuts in zip(caches, ((length,), (*PROBED_ROWS[:-1], length)), strict=True):
        probe = _probe(ids)
        while probe.num_computed_tokens < length:
            rows = min(cuts[0], length - probe.num_computed_tokens)
            cuts = cuts[1:]
            last = model(Batch.of([Chunk(probe, rows)], model.device), cache)
            probe.num_computed_tokens += rows
        logits.append(last)
    beside = [Chunk(_probe(ids, computed=length - 1), 1) for _ in range(2)]
    logits += torch.split(model(Batch.of(beside, model.device), caches[1]), 1)
    whole, pieces = caches
    return (
        all(torch.equal(logits[0], others) for others in logits[1:])
        and torch.equal(whole.keys, pieces.keys)
        and torch.equal(whole.values, pieces.values)
    )


def _probe(ids: tuple[int, ...], computed: int = 0) -> Sequence:
    table = list(range(blocks_for(len(ids))))
    return Sequence(ReplyId("probe"), 1, ids, Sampling(1), block_table=table, num_computed_tokens=computed)
