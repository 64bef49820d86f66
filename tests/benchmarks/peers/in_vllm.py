"""vLLM in this process, as its own LLM class runs it: prefix cache and chunked prefill as they are by default.

Without its compile step, which takes minutes on a CPU without AVX512, and without a tokenizer: ids in, ids out.
"""

from questions import answer_all, own_output, settings

answers, asked = own_output(), settings()

import vllm  # noqa: E402
from vllm import LLM, SamplingParams  # noqa: E402

if __name__ == "__main__":
    engine = LLM(
        model=asked["model"],
        dtype=asked["dtype"],
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_num_seqs=asked["at_once"],
        max_model_len=asked["context"],
    )

    def generate(prompts: list[list[int]], output: int) -> list[list[int]]:
        by = SamplingParams(max_tokens=output, temperature=0, ignore_eos=True, detokenize=False)
        done = engine.generate([{"prompt_token_ids": ids} for ids in prompts], by, use_tqdm=False)
        return [list(one.outputs[0].token_ids) for one in done]

    answer_all(f"vLLM {vllm.__version__}, eager", generate, answers)
