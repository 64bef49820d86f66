"""The prompt of a message: system prompt, the turns before it by their saved token ids, the new message last.

Invariant: a prompt begins with the prompt of the turn before it and that turn's exact ids, unless whole exchanges were
dropped from the front to fit the model's context. An answer without a token is left out: it would teach silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.events import Turn, unpack_ids
from schemas.tokenizer import ChatTokenizer, PromptTurn

LEAST_REPLY = 256
MOST_REPLY = 1024


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids of the whole prompt and of the new message, and how many tokens the reply may have."""

    ids: tuple[int, ...]
    message_ids: tuple[int, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class TooLong:
    """The message alone does not fit: `needed` tokens with its frame, of `context`."""

    needed: int
    context: int


def build(tokenizer: ChatTokenizer, history: Sequence[Turn], text: str, asked: int) -> Prompt | TooLong:
    """Fits history into the context, oldest turns dropped first; `asked` max_tokens, 0 if none was asked.

    The reply's share is at least what was asked, at most a quarter of the context while history competes for it.
    """
    message_ids = tokenizer.encode(text)
    system = PromptTurn("system", tokenizer.encode(tokenizer.system))
    latest = PromptTurn("user", message_ids)
    turns = _from_a_question([_prompt_turn(tokenizer, turn) for turn in history if turn.token_ids])
    reserve = min(asked or LEAST_REPLY, tokenizer.context // 4)
    ids = tokenizer.prompt([system, *turns, latest])
    while turns and len(ids) + reserve > tokenizer.context:
        turns = _from_a_question(turns[1:])
        ids = tokenizer.prompt([system, *turns, latest])
    room = tokenizer.context - len(ids)
    if room < 1:
        return TooLong(len(ids), tokenizer.context)
    return Prompt(ids, message_ids, min(asked or MOST_REPLY, room))


def _prompt_turn(tokenizer: ChatTokenizer, turn: Turn) -> PromptTurn:
    """The saved ids; the text encoded anew only if another model's tokenizer made them."""
    same = turn.tokenizer == tokenizer.fingerprint
    return PromptTurn(turn.role, unpack_ids(turn.token_ids) if same else tokenizer.encode(turn.text))


def _from_a_question(turns: list[PromptTurn]) -> list[PromptTurn]:
    """Drops the rest of an exchange whose beginning is gone, so that what is left begins with a user's turn."""
    return next((turns[index:] for index, turn in enumerate(turns) if turn.role == "user"), [])
