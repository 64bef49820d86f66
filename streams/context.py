"""The prompt of a message: system prompt, the turns before it by their saved token ids, the new message last; or
the messages that a client gives whole.

Invariant: a prompt begins with the prompt of the turn before it and that turn's exact ids, unless whole exchanges were
dropped from the front to fit the model's context. An answer without a token is left out: it would teach silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.events import ChatMessage, Turn, unpack_ids
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
    """The message alone does not fit: `needed` tokens with its frame, of `context`; or no `asked` tokens more.

    `counted` False: it needs at least so many, and was not looked at any closer.
    """

    needed: int
    context: int
    asked: int = 0
    counted: bool = True

    def __str__(self) -> str:
        at_least = "" if self.counted else "at least "
        reply = f" and max_tokens is {self.asked}" if self.asked else ""
        return f"the prompt has {at_least}{self.needed} tokens{reply}, where the context has {self.context}"


def build(tokenizer: ChatTokenizer, history: Sequence[Turn], text: str, asked: int) -> Prompt | TooLong:
    """Fits history into the context, oldest turns dropped first; `asked` max_tokens, 0 if none was asked.

    The reply's share is at least what was asked, at most a quarter of the context while history competes for it.
    """
    if (fewest := tokenizer.fewest(text)) >= tokenizer.context:
        return TooLong(fewest, tokenizer.context, counted=False)
    message_ids = tokenizer.encode(text)
    system = _default_system(tokenizer)
    latest = PromptTurn("user", message_ids)
    turns = _from_a_question([_prompt_turn(tokenizer, turn) for turn in history if turn.token_ids])
    reserve = min(asked or LEAST_REPLY, tokenizer.context // 4)
    ids = tokenizer.prompt([*system, *turns, latest])
    while turns and len(ids) + reserve > tokenizer.context:
        turns = _from_a_question(turns[1:])
        ids = tokenizer.prompt([*system, *turns, latest])
    room = tokenizer.context - len(ids)
    if room < 1:
        return TooLong(len(ids), tokenizer.context)
    return Prompt(ids, message_ids, min(asked or MOST_REPLY, room))


def build_whole(tokenizer: ChatTokenizer, messages: Sequence[ChatMessage], asked: int) -> Prompt | TooLong:
    """The messages as they are, after the model's own system prompt unless they begin with one. Nothing is cut: what
    does not fit with the tokens that were asked for is TooLong. None asked: the reply may fill the context.
    """
    fewest = sum(tokenizer.fewest(message.text) for message in messages)
    if fewest >= tokenizer.context:
        return TooLong(fewest, tokenizer.context, counted=False)
    system = [] if messages[0].role == "system" else _default_system(tokenizer)
    turns = [PromptTurn(message.role, tokenizer.encode(message.text)) for message in messages]
    ids = tokenizer.prompt([*system, *turns])
    room = tokenizer.context - len(ids)
    if room < max(asked, 1):
        return TooLong(len(ids), tokenizer.context, asked)
    return Prompt(ids, (), asked or room)


def _default_system(tokenizer: ChatTokenizer) -> list[PromptTurn]:
    """The system turn that the model's template begins with; none for a model that has none."""
    return [PromptTurn("system", tokenizer.encode(tokenizer.system))] if tokenizer.system else []


def _prompt_turn(tokenizer: ChatTokenizer, turn: Turn) -> PromptTurn:
    """The saved ids; the text encoded anew only if another model's tokenizer made them."""
    same = turn.tokenizer == tokenizer.fingerprint
    return PromptTurn(turn.role, unpack_ids(turn.token_ids) if same else tokenizer.encode(turn.text))


def _from_a_question(turns: list[PromptTurn]) -> list[PromptTurn]:
    """Drops the rest of an exchange whose beginning is gone, so that what is left begins with a user's turn."""
    return next((turns[index:] for index, turn in enumerate(turns) if turn.role == "user"), [])
