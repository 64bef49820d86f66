"""The sizes of a Llama, and the names and shapes of its tensors, whatever file they come from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """`context` counts tokens; `tied`: the output layer shares the embedding's weights."""

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    epsilon: float
    context: int
    tied: bool

    def kv_bytes(self, tokens: int, itemsize: int) -> int:
        """What the keys and values of so many tokens take."""
        return 2 * self.layers * self.kv_heads * self.head_dim * tokens * itemsize

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor that a model of this config has, by the names that Hugging Face gives them."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (self.vocabulary, self.hidden),
            "model.norm.weight": (self.hidden,),
        }
        if not self.tied:
            shapes["lm_head.weight"] = (self.vocabulary, self.hidden)
        for n in range(self.layers):
            layer = f"model.layers.{n}"
            shapes |= {
                f"{layer}.input_layernorm.weight": (self.hidden,),
                f"{layer}.self_attn.q_proj.weight": (queries, self.hidden),
                f"{layer}.self_attn.k_proj.weight": (keys, self.hidden),
                f"{layer}.self_attn.v_proj.weight": (keys, self.hidden),
                f"{layer}.self_attn.o_proj.weight": (self.hidden, queries),
                f"{layer}.post_attention_layernorm.weight": (self.hidden,),
                f"{layer}.mlp.gate_proj.weight": (self.intermediate, self.hidden),
                f"{layer}.mlp.up_proj.weight": (self.intermediate, self.hidden),
                f"{layer}.mlp.down_proj.weight": (self.hidden, self.intermediate),
            }
        return shapes
