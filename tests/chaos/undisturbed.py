"""What the replies to requests are when nothing goes wrong: requests of the log through one engine, without a log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from engine.detokenizer import Detokenizer
from engine.engine import Change, Engine
from engine.runner import Runner
from engine.scheduler import Limits
from engine.scripted import ScriptedRunner
from engine.sequence import Sequence
from engine.transcript import Token, Transcript
from schemas.events import GenerateRequested, unpack_ids
from schemas.ids import ReplyId
from schemas.tokenizer import ChatTokenizer
from tests.checker.history import Undisturbed

BLOCKS = 1024

Whole = Callable[[Iterable[GenerateRequested]], dict[ReplyId, Undisturbed]]


def undisturbed(model: Path, replica: str) -> Whole:
    """Computes replies as a `scripted` or `model` replica of that folder does."""
    tokenizer = ChatTokenizer.load(model)
    runner = ScriptedRunner(tokenizer, num_blocks=BLOCKS) if replica == "scripted" else _model(model, tokenizer)
    return lambda requests: _generated(runner, tokenizer, requests)


def _model(model: Path, tokenizer: ChatTokenizer) -> Runner:
    """In one thread, as the replicas compute: their number is part of a fingerprint, and so are ops and dtype."""
    import torch

    from engine.model_runner import ModelRunner
    from engine.ops import choose

    torch.set_num_threads(1)
    return ModelRunner.load(model, BLOCKS, tokenizer.eos_ids, choose.dtype("auto"), choose.ops("auto"))


def _generated(
    runner: Runner, tokenizer: ChatTokenizer, requests: Iterable[GenerateRequested]
) -> dict[ReplyId, Undisturbed]:
    engine = Engine(runner, Limits(), clock=lambda: 0.0)
    transcripts: dict[ReplyId, Transcript] = {}
    tokens: defaultdict[ReplyId, list[Token]] = defaultdict(list)
    found: dict[ReplyId, Undisturbed] = {}
    for request in requests:
        sequence = Sequence(request.reply, 1, unpack_ids(request.prompt), request.sampling)
        detokenizer = Detokenizer(tokenizer.piece, request.sampling.stop)
        transcripts[request.reply] = Transcript(sequence, detokenizer, tokenizer.eos_ids)
        engine.add(sequence)
    while engine.has_work:
        for sequence, outcome in engine.step():
            if isinstance(outcome, Change):
                continue
            advance, so_far = transcripts[sequence.reply].take(outcome), tokens[sequence.reply]
            so_far += advance.tokens
            if advance.finish_reason:
                ids, texts = tuple(token.id for token in so_far), tuple(token.text for token in so_far)
                found[sequence.reply] = Undisturbed(ids, texts, advance.finish_reason)
                engine.finish(sequence)
    return found
