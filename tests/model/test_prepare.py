"""The default model's folder: made once, and its tokenizer is the one that the model was trained with."""

import json
from pathlib import Path

import gguf
import pytest
from jinja2 import Environment
from tokenizers import Tokenizer

from engine.errors import UnsupportedModel
from engine.gguf_file import GgufFile
from engine.prepare import prepare
from infra.local.model import fetch
from schemas.tokenizer import ChatTokenizer, PromptTurn

TALK = [
    ("user", "Hello! What's 1234 + 56?"),
    ("assistant", "It is 1290.\n\nAnything else?"),
    ("user", "Schönen Dank, 東京 is nice 🙂\tcode:\n    return x  # done"),
]


def test_a_prompt_is_what_the_models_own_template_makes(smollm2: Path, tokenizer: ChatTokenizer) -> None:
    template = Environment().from_string(GgufFile(smollm2 / "model.gguf").field("tokenizer.chat_template"))
    messages = [{"role": role, "content": text} for role, text in TALK]
    rendered = template.render(messages=messages, add_generation_prompt=True)
    expected = Tokenizer.from_file(str(smollm2 / "tokenizer.json")).encode(rendered).ids
    turns = [PromptTurn(role, tokenizer.encode(text)) for role, text in [("system", tokenizer.system), *TALK]]
    assert list(tokenizer.prompt(turns)) == expected


def test_known_texts_have_the_ids_of_the_trained_tokenizer(tokenizer: ChatTokenizer) -> None:
    assert tokenizer.encode("The capital of France is Paris.") == (504, 3575, 282, 4649, 314, 7042, 30)
    assert [tokenizer.piece(token_id) for token_id in tokenizer.encode(" 2026")] == [b" ", b"2", b"0", b"2", b"6"]


def test_every_special_token_can_be_typed_as_text(smollm2: Path, tokenizer: ChatTokenizer) -> None:
    added = json.loads((smollm2 / "tokenizer.json").read_text())["added_tokens"]
    special = {token["id"] for token in added}
    assert len(special) == 17
    for token in added:
        ids = tokenizer.encode(f"x {token['content']}y")
        assert not special & set(ids)
        assert b"".join(map(tokenizer.piece, ids)).decode() == f"x {token['content']}y"


def test_the_folder_says_what_the_model_is(tokenizer: ChatTokenizer) -> None:
    assert (tokenizer.name, tokenizer.context) == ("smollm2-135m-instruct", 8192)
    assert tokenizer.eos_ids == {0, 2}
    assert tokenizer.system == "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def test_a_model_that_is_there_is_not_fetched_again(smollm2: Path) -> None:
    said: list[str] = []
    assert fetch(smollm2, said.append) == smollm2
    assert said == []


def test_an_unknown_pre_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "llama")
    for add in (writer.add_embedding_length, writer.add_feed_forward_length, writer.add_head_count):
        add(64)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list(["a"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModel, match="gpt2/llama-bpe; supported: gpt2/smollm"):
        prepare(tmp_path / "other.gguf", tmp_path / "folder")
