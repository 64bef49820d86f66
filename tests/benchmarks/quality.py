"""`make bench-quality`: what int8 weights cost in quality, against float32, on 200 prompts.

Of each prompt: the KL divergence of the next token's distribution, whether the likeliest token is the same, and how
many of the tokens of a greedy reply are said before the first that differs.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
import typer
from rich.progress import track
from torch import Tensor

from engine.batch import Batch
from engine.config import ReplicaConfig
from engine.model_runner import ModelRunner
from engine.ops import choose
from engine.sequence import Chunk, Sequence, blocks_for
from schemas.events import Sampling
from schemas.ids import ReplyId
from schemas.settings import load
from schemas.tokenizer import ChatTokenizer, PromptTurn
from tests.unit.engine.generating import Generation, generate

REPOSITORY = Path(__file__).parents[2]
SHORTEST_LINE = 40


def main(prompts: int = 200, tokens: int = 24) -> None:
    """Compares LANEWAY_MODEL with itself, on LANEWAY_OPS."""
    config = load(ReplicaConfig, os.environ)
    tokenizer, ops = ChatTokenizer.load(config.model), choose.ops(config.ops)
    asked = [tokenizer.prompt([PromptTurn("user", tokenizer.encode(text))]) for text in texts(prompts)]
    blocks = prompts * blocks_for(max(map(len, asked)) + tokens)
    models = [ModelRunner.load(config.model, blocks, ops=ops, dtype=dtype) for dtype in (torch.float32, torch.int8)]
    divergence, same = 0.0, 0
    for prompt in track(asked, "next tokens", transient=True):
        exact, coarse = (next_token(model, prompt) for model in models)
        divergence += float((exact.exp() * (exact - coarse)).sum())
        same += int(exact.argmax() == coarse.argmax())
    asking = [Generation(prompt, Sampling(tokens, temperature=0)) for prompt in asked]
    said = [generate(model, *asking, max_running=64) for model in models]
    alike = [next((n for n in range(tokens) if a[n] != b[n]), tokens) for a, b in zip(*said, strict=True)]
    print(f"{prompts} prompts: mean KL {divergence / prompts:.4f}, the same likeliest token {same / prompts:.1%}")
    print(
        f"greedy: {sum(alike) / prompts:.1f} of {tokens} tokens alike, {alike.count(tokens) / prompts:.0%} all of them"
    )


def texts(count: int) -> list[str]:
    """Prose and tables of this repository, a line each."""
    lines = [line.strip() for name in ("README.md", "CHANGELOG.md") for line in (REPOSITORY / name).open()]
    return [f"Explain: {line}" for line in lines if len(line) >= SHORTEST_LINE][:count]


@torch.inference_mode()
def next_token(runner: ModelRunner, prompt: tuple[int, ...]) -> Tensor:
    """Log probabilities after a prompt."""
    sequence = Sequence(ReplyId("r"), 1, prompt, Sampling(1), block_table=list(range(blocks_for(len(prompt)))))
    [logits] = runner._model(Batch.of([Chunk(sequence, len(prompt))], torch.device("cpu")), runner._cache)
    return logits.double().log_softmax(-1)


if __name__ == "__main__":
    typer.run(main)
