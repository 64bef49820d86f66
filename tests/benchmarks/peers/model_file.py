"""The model as a GGUF file of one type: its metadata as it is, its matrices in float32, bfloat16 or int8 (Q8_0)."""

from __future__ import annotations

from pathlib import Path

import gguf
from gguf import GGMLQuantizationType as Type

TYPES = {"float32": Type.F32, "bfloat16": Type.BF16, "int8": Type.Q8_0}
_OF_THE_FILE = ("GGUF.", "general.architecture", "general.file_type", "general.quantization_version")


def gguf_file(model: Path, folder: Path, dtype: str) -> Path:
    """Made once, from `model.gguf` of a model's folder."""
    made = folder / f"{model.name}.{dtype}.gguf"
    if made.exists():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    fresh, source = made.with_suffix(".part"), gguf.GGUFReader(model / "model.gguf")
    architecture = source.get_field("general.architecture")
    assert architecture is not None
    writer = gguf.GGUFWriter(fresh, architecture.contents())
    for field in source.fields.values():
        if not field.name.startswith(_OF_THE_FILE):
            of = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], of)
    for tensor in source.tensors:
        numbers = gguf.dequantize(tensor.data, tensor.tensor_type)
        wanted = TYPES[dtype] if numbers.ndim > 1 else Type.F32
        writer.add_tensor(tensor.name, gguf.quants.quantize(numbers, wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return fresh.rename(made)
