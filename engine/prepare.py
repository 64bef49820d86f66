"""A GGUF file to a model folder: `model.gguf`, `tokenizer.json` and `laneway.json`.

The tokenizer is rebuilt from the file's metadata, so that a folder's weights and tokenizer always belong together.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from engine.errors import UnsupportedModel
from engine.gguf_file import GgufFile
from schemas.tokenizer import TURN_START

# How a text is cut before BPE, by the name that llama.cpp gives it.
_PRE_TOKENIZERS = {
    "smollm": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
}
_CONTROL, _USER_DEFINED = 3, 4
_DEFAULT_SYSTEM = re.compile(r"<\|im_start\|>system(?:\n|\\n)(.+?)<\|im_end\|>", re.DOTALL)
_QUANTISATION = re.compile(r"[.-](q\d\w*|f16|f32|bf16)$")


def prepare(gguf: Path, folder: Path, temperature: float = 1.0, top_p: float = 1.0) -> None:
    """Fills `folder`, which may exist; the model's name is the file's, less its quantisation.

    `temperature` and `top_p` are for requests that ask for none; no GGUF file holds them.

    Raises UnsupportedModel for a tokenizer or a chat template that is not known here.
    """
    source = GgufFile(gguf)
    config = source.config()
    tokenizer = _tokenizer(source, gguf)
    settings = {
        "name": _QUANTISATION.sub("", gguf.stem.lower()),
        "context": config.context,
        "template": "chatml",
        "eos": _ends(source),
        "system": _default_system(source, gguf),
        "temperature": temperature,
        "top_p": top_p,
    }
    folder.mkdir(parents=True, exist_ok=True)
    _link_or_copy(gguf, folder / "model.gguf")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "laneway.json").write_text(json.dumps(settings, indent=2) + "\n")


def _tokenizer(source: GgufFile, path: Path) -> Tokenizer:
    kind, cut = source.field("tokenizer.ggml.model"), source.field("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or cut not in _PRE_TOKENIZERS:
        supported = ", ".join(f"gpt2/{name}" for name in _PRE_TOKENIZERS)
        raise UnsupportedModel(f"{path}: tokenizer {kind}/{cut}; supported: {supported}")
    tokens: list[str] = source.field("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in source.field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({token: n for n, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = _PRE_TOKENIZERS[cut]()
    tokenizer.decoder = decoders.ByteLevel()
    types: list[int] = source.field("tokenizer.ggml.token_type")
    added = [(token, kind) for token, kind in zip(tokens, types, strict=True) if kind in (_CONTROL, _USER_DEFINED)]
    tokenizer.add_tokens([AddedToken(token, special=kind == _CONTROL, normalized=False) for token, kind in added])
    return tokenizer


def _ends(source: GgufFile) -> list[str]:
    tokens, types = source.field("tokenizer.ggml.tokens"), source.field("tokenizer.ggml.token_type")
    declared = tokens[source.field("tokenizer.ggml.eos_token_id")]
    control = {token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL}
    return [declared, *sorted(control & {"<|im_end|>", "<|endoftext|>"} - {declared})]


def _default_system(source: GgufFile, path: Path) -> str:
    template: str = source.field("tokenizer.chat_template")
    if TURN_START not in template:
        raise UnsupportedModel(f"{path}: the chat template is not ChatML, the only one supported")
    found = _DEFAULT_SYSTEM.search(template)
    return found[1] if found else ""


def _link_or_copy(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
