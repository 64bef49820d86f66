"""Hugging Face's own Llama on the engine's weights: what logits and greedy tokens are compared with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from engine.weights import Weights


class HuggingFace:
    """Float32, attention as it is written in Python; the weights are shared, not copied."""

    def __init__(self, weights: Weights) -> None:
        config = _config(weights)
        with torch.device("meta"):
            self._model = LlamaForCausalLM(config)
        self._model.load_state_dict(weights.tensors, strict=False, assign=True)
        self._model.tie_weights()
        self._model.model.rotary_emb = LlamaRotaryEmbedding(config)
        assert not any(tensor.is_meta for tensor in self._model.state_dict().values()), "a weight is missing"
        self._model.eval()

    @torch.inference_mode()
    def logits(self, ids: Sequence[int]) -> Tensor:
        """[ids, vocabulary]: after each of them, what may come next."""
        [logits] = self._model(torch.tensor([list(ids)])).logits
        return logits

    def likeliest(self, prompt: Sequence[int], *said: int) -> list[int]:
        """After the prompt, and after each but the last of what was said, the likeliest next token: if these are what
        was said, greedy sampling says it too. One pass over all of it is a third of the work of a pass for each.
        """
        rows = self.logits([*prompt, *said[:-1]])[len(prompt) - 1 :]
        return rows.argmax(-1).tolist()


def _config(weights: Weights) -> LlamaConfig:
    own = weights.config
    return LlamaConfig(
        vocab_size=own.vocabulary,
        hidden_size=own.hidden,
        intermediate_size=own.intermediate,
        num_hidden_layers=own.layers,
        num_attention_heads=own.heads,
        num_key_value_heads=own.kv_heads,
        head_dim=own.head_dim,
        rms_norm_eps=own.epsilon,
        max_position_embeddings=own.context,
        tie_word_embeddings=own.tied,
        rope_parameters={"rope_type": "default", "rope_theta": own.rope_theta},
        attn_implementation="eager",
    )
