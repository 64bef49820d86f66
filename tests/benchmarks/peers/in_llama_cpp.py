"""llama.cpp in this process, one request at a time, with the weights quantised anew to the same class."""

from pathlib import Path

from questions import answer_all, own_output, settings

answers, asked = own_output(), settings()

import llama_cpp  # noqa: E402

TYPES = {
    "float32": llama_cpp.LLAMA_FTYPE_ALL_F32,
    "bfloat16": llama_cpp.LLAMA_FTYPE_MOSTLY_BF16,
    "int8": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
}


def quantised(model: Path, dtype: str) -> Path:
    path = Path(asked["scratch"]) / f"{model.parent.name}-{dtype}.gguf"
    if not path.exists():
        by = llama_cpp.llama_model_quantize_default_params()
        by.ftype, by.allow_requantize, by.nthread = TYPES[dtype], True, asked["threads"]
        if llama_cpp.llama_model_quantize(bytes(model), bytes(path), by):
            raise SystemExit(f"{model} could not be made {dtype}")
    return path


if __name__ == "__main__":
    engine = llama_cpp.Llama(
        str(quantised(Path(asked["gguf"]), asked["dtype"])),
        n_ctx=asked["context"],
        n_threads=asked["threads"],
        n_threads_batch=asked["threads"],
        verbose=False,
    )

    def generate(prompts: list[list[int]], output: int) -> list[list[int]]:
        (prompt,) = prompts
        engine.reset()
        drawn = engine.generate(prompt, temp=0)
        return [[next(drawn) for _ in range(output)]]

    answer_all(f"llama.cpp ({llama_cpp.__version__}), {asked['dtype']}", generate, answers)
