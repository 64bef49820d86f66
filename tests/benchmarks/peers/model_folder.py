"""The model as a Hugging Face folder: weights in float32, config, tokenizer and chat template."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save_file

from engine.weights import load_weights

# As schemas/tokenizer.py writes prompts.
_TEMPLATE = (
    "{% for one in messages %}<|im_start|>{{ one.role }}\n{{ one.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def hugging_face_folder(model: Path, folder: Path) -> Path:
    """Made once."""
    if (folder / "config.json").exists():
        return folder
    weights = load_weights(model)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights.tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "tokenizer.json").write_bytes((model / "tokenizer.json").read_bytes())
    by_tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": _TEMPLATE, "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(by_tokenizer))
    config = weights.config
    fields = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "torch_dtype": "float32",
        "vocab_size": config.vocabulary,
        "hidden_size": config.hidden,
        "intermediate_size": config.intermediate,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.epsilon,
        "max_position_embeddings": config.context,
        "tie_word_embeddings": config.tied,
    }
    (folder / "config.json").write_text(json.dumps(fields))
    return folder
