"""What the log is told of a sequence: tokens with their texts, and the end.

In: sampled ids. Out: `Advance`, the tokens that may be written now. Texts and end depend on the ids alone, so a
continued reply reads and ends like the unbroken one.

A token that leaves text held back (half a character, the beginning of a stop string) is written together with the
token after it: if the reply ends there, the held text belongs to the last token, and a written token never changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from engine.detokenizer import Detokenizer
from engine.runner import Logprobs, Sampled
from engine.sequence import Sequence

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the reply, the text that it made visible, which may be empty, and how likely it was, if asked for."""

    id: int
    text: str
    logprobs: Logprobs | None = None


@dataclass(frozen=True, slots=True)
class Advance:
    """The tokens, none to two, that a step made ready to be written, and the reason if the reply has ended."""

    tokens: tuple[Token, ...]
    finish_reason: FinishReason | None = None


class Transcript:
    """`finish_reason` is set after construction when the accepted tokens already ended the reply."""

    def __init__(self, sequence: Sequence, detokenizer: Detokenizer, eos_ids: frozenset[int]) -> None:
        self._sequence = sequence
        self._detokenizer = detokenizer
        self._eos_ids = eos_ids
        self._withheld: tuple[Token, ...] = ()
        self.finish_reason = self._replay()

    def take(self, sampled: Sampled) -> Advance:
        """Appends a sampled id to the sequence and says what may be written.

        An end of sequence finishes with `stop` and is no part of the reply, unless `ignore_eos` makes it one. The
        tokens of a stop string are; the text from the stop string on is not. The last of `max_tokens` finishes with
        `length`.
        """
        token_id = sampled.token_id
        if token_id in self._eos_ids and not self._sequence.sampling.ignore_eos:
            return self._finish(self._with_held_text(self._withheld), "stop")
        self._sequence.output.append(token_id)
        piece = self._detokenizer.push(token_id)
        tokens = (*self._withheld, Token(token_id, piece.text, sampled.logprobs))
        if piece.stopped:
            return self._finish(tokens, "stop")
        if self._is_full():
            return self._finish(self._with_held_text(tokens), "length")
        ready = len(tokens) - self._detokenizer.holding
        self._withheld = tokens[ready:]
        return Advance(tokens[:ready])

    def _replay(self) -> FinishReason | None:
        for token_id in self._sequence.output:
            if self._detokenizer.push(token_id).stopped:
                return "stop"
        return "length" if self._is_full() else None

    def _is_full(self) -> bool:
        return len(self._sequence.output) >= self._sequence.sampling.max_tokens

    def _with_held_text(self, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
        held = self._detokenizer.flush()
        return (*tokens[:-1], replace(tokens[-1], text=tokens[-1].text + held)) if tokens else ()

    def _finish(self, tokens: tuple[Token, ...], reason: FinishReason) -> Advance:
        self.finish_reason = reason
        return Advance(tokens, reason)
