"""What the reply to a request is when nothing goes wrong: the request of the log through one engine, alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.detokenizer import Detokenizer
from engine.engine import Change, Engine
from engine.runner import Runner
from engine.scheduler import Limits
from engine.scripted import ScriptedRunner
from engine.sequence import Sequence
from engine.transcript import Token, Transcript
from schemas.events import GenerateRequested, unpack_ids
from schemas.tokenizer import ChatTokenizer
from tests.checker.history import Undisturbed

BLOCKS = 128


def alone(model: Path, replica: str) -> Callable[[GenerateRequested], Undisturbed]:
    """Computes replies as a `scripted` or `model` replica of that folder does."""
    tokenizer = ChatTokenizer.load(model)
    runner = ScriptedRunner(tokenizer, num_blocks=BLOCKS) if replica == "scripted" else _model(model, tokenizer)
    return lambda request: _generated(runner, tokenizer, request)


def _model(model: Path, tokenizer: ChatTokenizer) -> Runner:
    """In one thread, as the replicas compute: their number is part of a fingerprint."""
    import torch

    from engine.model_runner import ModelRunner

    torch.set_num_threads(1)
    return ModelRunner.load(model, BLOCKS, tokenizer.eos_ids)


def _generated(runner: Runner, tokenizer: ChatTokenizer, request: GenerateRequested) -> Undisturbed:
    sequence = Sequence(request.reply, 1, unpack_ids(request.prompt), request.sampling)
    transcript = Transcript(sequence, Detokenizer(tokenizer.piece, request.sampling.stop), tokenizer.eos_ids)
    engine = Engine(runner, Limits(), clock=lambda: 0.0)
    engine.add(sequence)
    tokens: list[Token] = []
    while True:
        for _, outcome in engine.step():
            if isinstance(outcome, Change):
                continue
            advance = transcript.take(outcome)
            tokens += advance.tokens
            if advance.finish_reason:
                return Undisturbed(tuple(t.id for t in tokens), tuple(t.text for t in tokens), advance.finish_reason)
