"""A tokenizer with one token per byte and three special ones: every text is a prompt, every id a byte. No torch."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONTEXT = 512
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def write_tokenizer(folder: Path) -> Path:
    """`tokenizer.json` and `laneway.json` alone: enough for everything but the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({word: n for n, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"name": "tiny", "context": CONTEXT, "template": "chatml", "eos": ["<|im_end|>"], "system": "Be brief."}
    (folder / "laneway.json").write_text(json.dumps(settings))
    return folder
