"""Weights out of both kinds of file."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine import gguf_file
from engine.errors import UnsupportedModel
from engine.weights import load_weights
from tests.benchmarks.peers import model_file
from tests.tiny_llama import CONFIG, write_tiny_llama

HEADS = {"attn_q": 4, "attn_k": 2}


def write_gguf(folder: Path, tensors: dict[str, torch.Tensor], kind: str) -> None:
    """The tiny model as llama.cpp's converter would write it, matrices in the type `kind`."""
    stems = {ours: theirs for theirs, ours in gguf_file._NAMES.items()}
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(128)
    writer.add_block_count(2)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_context_length(512)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list([str(n) for n in range(259)])
    for name, tensor in tensors.items():
        layer = "".join(f"blk.{n}." for n in (0, 1) if f"layers.{n}." in name)
        stem = stems[name.removesuffix(".weight").removeprefix(f"model.layers.{layer[4:-1]}.")]
        array = tensor.numpy()
        if heads := HEADS.get(stem):
            array = array.reshape(heads, 2, -1, 64).swapaxes(1, 2).reshape(array.shape)
        quantisation = gguf.GGMLQuantizationType[kind if array.ndim == 2 else "F32"]
        stored = gguf.quants.quantize(np.ascontiguousarray(array), quantisation)
        writer.add_tensor(f"{layer}{stem}.weight", stored, raw_dtype=quantisation)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(("kind", "error"), [("F32", 0), ("F16", 1e-3), ("BF16", 1e-2), ("Q8_0", 0.01), ("Q4_1", 0.15)])
def test_every_supported_type_gives_the_same_weights(tiny: Path, tmp_path: Path, kind: str, error: float) -> None:
    expected = load_weights(tiny)
    write_gguf(tmp_path, load_file(tiny / "model.safetensors"), kind)
    got = load_weights(tmp_path)
    assert got.tensors.keys() == expected.tensors.keys()
    assert (got.config.tied, got.config.kv_heads, got.digest == expected.digest) == (True, 2, False)
    for name, tensor in got.tensors.items():
        scale = float(expected.tensors[name].abs().max())
        torch.testing.assert_close(tensor, expected.tensors[name], atol=error * scale, rtol=0)


@pytest.mark.parametrize(("dtype", "error"), [("float32", 0), ("bfloat16", 1e-2), ("int8", 0.01)])
def test_a_copy_for_a_peer_has_the_same_weights_and_words(tiny: Path, tmp_path: Path, dtype: str, error: float) -> None:
    write_gguf(tmp_path, load_file(tiny / "model.safetensors"), "F32")
    copy = model_file.gguf_file(tmp_path, tmp_path / "copy", dtype)
    words = [gguf.GGUFReader(path).get_field("tokenizer.ggml.tokens") for path in (tmp_path / "model.gguf", copy)]
    expected, got = load_weights(tmp_path), load_weights(copy.rename(tmp_path / "copy" / "model.gguf").parent)
    assert (got.config, words[0] and words[0].contents()) == (expected.config, words[1] and words[1].contents())
    for name, tensor in expected.tensors.items():
        torch.testing.assert_close(got.tensors[name], tensor, atol=error, rtol=0)


def test_an_unsupported_type_is_refused_by_name(tiny: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path, load_file(tiny / "model.safetensors"), "Q5_0")
    with pytest.raises(
        UnsupportedModel, match=r"token_embd.weight has type Q5_0; supported: F32, F16, BF16, Q8_0, Q4_1"
    ):
        load_weights(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "model_type is 'mamba'; supported: 'llama'"),
        ({"rope_scaling": {"factor": 2}}, "rope_scaling"),
        ({"num_hidden_layers": 3}, "tensor model.layers.2.input_layernorm.weight is missing"),
        ({"num_hidden_layers": 1}, "tensor model.layers.1.input_layernorm.weight is not part of a Llama"),
        ({"intermediate_size": 256}, "mlp.down_proj.weight has shape (64, 128), expected (64, 256)"),
        ({"vocab_size": None}, "no vocab_size"),
    ],
)
def test_a_config_that_is_not_this_llama_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    config = {key: value for key, value in (CONFIG | change).items() if value is not None}
    (write_tiny_llama(tmp_path) / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel) as refused:
        load_weights(tmp_path)
    assert message in str(refused.value)


def test_the_digest_follows_the_weights(tmp_path: Path) -> None:
    first, same, other = (
        load_weights(write_tiny_llama(tmp_path / name, seed)).digest for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first == same != other


def test_a_folder_without_a_model_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"neither model.gguf nor config.json and model.safetensors"):
        load_weights(tmp_path)


def test_integer_weights_are_refused(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path) / "model.safetensors"
    save_file(load_file(path) | {"model.norm.weight": torch.ones(64, dtype=torch.int8)}, path)
    with pytest.raises(UnsupportedModel, match=r"model.norm.weight has type torch.int8"):
        load_weights(tmp_path)
