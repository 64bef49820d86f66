"""What a reply is when nothing goes wrong: one message through one engine, alone, without a log."""

from __future__ import annotations

from functools import lru_cache

from engine.detokenizer import Detokenizer
from engine.engine import Change, Engine
from engine.scheduler import Limits
from engine.scripted import ScriptedRunner
from engine.sequence import Sequence
from engine.transcript import Token, Transcript
from schemas.events import Sampling
from schemas.ids import ReplyId
from schemas.tokenizer import ChatTokenizer, PromptTurn
from tests.checker.history import Undisturbed
from tests.simulation.clients import Ask


@lru_cache(maxsize=4096)
def undisturbed(tokenizer: ChatTokenizer, ask: Ask) -> Undisturbed:
    prompt = tokenizer.prompt([PromptTurn("user", tokenizer.encode(ask.text))])
    sequence = Sequence(ReplyId("r"), 1, prompt, Sampling(ask.max_tokens, stop=ask.stop))
    transcript = Transcript(sequence, Detokenizer(tokenizer.piece, ask.stop), tokenizer.eos_ids)
    engine = Engine(ScriptedRunner(tokenizer, num_blocks=64), Limits(), clock=lambda: 0.0)
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
