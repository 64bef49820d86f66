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

    @torch.inference_mode()
    def greedy(self, prompt: Sequence[int], tokens: int) -> list[int]:
        """So many tokens, an end of sequence like any other."""
        said = self._model.generate(
            torch.tensor([list(prompt)]),
            max_new_tokens=tokens,
            do_sample=False,
            use_cache=True,
            eos_token_id=None,
            pad_token_id=0,
        )
        return said[0, len(prompt) :].tolist()


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
