"""The prompt of a message: system prompt, the turns of its branch by their saved token ids, the new message last; or
the messages that a client gives whole.

Invariant: a prompt begins with the prompt of the question before it and its answer's exact ids. When that does not fit
any more, whole exchanges are dropped from the front in one step, down to a share of the context, so that the prompts
after it begin alike again: a question says where its prompt began (`Turn.begins`), and the next one begins there too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import accumulate

from schemas.events import ChatMessage, Turn, unpack_ids
from schemas.ids import MessageId
from schemas.tokenizer import ChatTokenizer, PromptTurn

LEAST_REPLY = 256
MOST_REPLY = 1024
# A step leaves the turns one part in so many of the room that they have.
STEP_LEAVES = 2


class Enters(Enum):
    """What of an exchange is in later prompts."""

    WHOLE = "question and answer"
    QUESTION = "the question"
    NOTHING = "nothing"


# By the status of the answer. One without a token is never there: it would teach silence.
ENTERS: Mapping[str, Enters] = {
    "complete": Enters.WHOLE,
    "stopped": Enters.WHOLE,
    "failed": Enters.QUESTION,
    "flagged": Enters.NOTHING,
}


@dataclass(frozen=True, slots=True)
class Branch:
    """What a message follows: the turns before it, oldest first, and the conversation's own system prompt."""

    turns: Sequence[Turn] = ()
    system: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids of the whole prompt and of the new message, and how many tokens the reply may have. `begins`: the
    question that its turns begin with, None for all of the branch.
    """

    ids: tuple[int, ...]
    message_ids: tuple[int, ...]
    max_tokens: int
    begins: MessageId | None = None


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


def build(
    tokenizer: ChatTokenizer, branch: Branch, question: Turn, asked: int, enters: Mapping[str, Enters] = ENTERS
) -> Prompt | TooLong:
    """Fits the branch before the question into the context; `asked` max_tokens, 0 if none was asked.

    The reply's share is at least what was asked, at most a quarter of the context while turns compete for it.
    """
    if (fewest := tokenizer.fewest(question.text) + tokenizer.fewest(branch.system)) >= tokenizer.context:
        return TooLong(fewest, tokenizer.context, counted=False)
    latest = _prompt_turn(tokenizer, question)
    system = _system(tokenizer, branch.system)
    frame = len(tokenizer.prompt([*system, latest]))
    exchanges = _exchanges(tokenizer, branch.turns, enters)
    room = tokenizer.context - min(asked or LEAST_REPLY, tokenizer.context // 4) - frame
    start = _start(exchanges, _begun(tokenizer, branch.turns, question), room)
    ids = tokenizer.prompt([*system, *(turn for exchange in exchanges[start:] for turn in exchange.turns), latest])
    if (left := tokenizer.context - len(ids)) < 1:
        return TooLong(len(ids), tokenizer.context)
    whole = not start and (not branch.turns or branch.turns[0].parent is None)
    names = [exchange.message for exchange in exchanges[start:]]
    begins = None if whole else (names or [question.message])[0]
    return Prompt(ids, latest.token_ids, min(asked or MOST_REPLY, left), begins)


def build_whole(tokenizer: ChatTokenizer, messages: Sequence[ChatMessage], asked: int) -> Prompt | TooLong:
    """The messages as they are, after the model's own system prompt unless they begin with one. Nothing is cut: what
    does not fit with the tokens that were asked for is TooLong. None asked: the reply may fill the context.
    """
    fewest = sum(tokenizer.fewest(message.text) for message in messages)
    if fewest >= tokenizer.context:
        return TooLong(fewest, tokenizer.context, counted=False)
    system = [] if messages[0].role == "system" else _system(tokenizer, "")
    turns = [PromptTurn(message.role, tokenizer.encode(message.text)) for message in messages]
    ids = tokenizer.prompt([*system, *turns])
    room = tokenizer.context - len(ids)
    if room < max(asked, 1):
        return TooLong(len(ids), tokenizer.context, asked)
    return Prompt(ids, (), asked or room)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and what of it and its answer is in a prompt, `tokens` with the template around it."""

    message: MessageId
    turns: tuple[PromptTurn, ...]
    tokens: int


def _exchanges(tokenizer: ChatTokenizer, turns: Sequence[Turn], enters: Mapping[str, Enters]) -> list[Exchange]:
    """The turns by their questions; the rest of an exchange whose question is gone is left out."""
    grouped: list[list[Turn]] = []
    for turn in turns:
        if turn.role == "user":
            grouped.append([turn])
        elif grouped:
            grouped[-1].append(turn)
    found = []
    for question, *answers in grouped:
        wanted = {enters.get(answer.status, Enters.QUESTION) for answer in answers}
        said = [answer for answer in answers if answer.token_ids and enters.get(answer.status) is Enters.WHOLE]
        entering = [] if Enters.NOTHING in wanted else [_prompt_turn(tokenizer, turn) for turn in (question, *said)]
        tokens = sum(tokenizer.turn_length(turn.role, len(turn.token_ids)) for turn in entering)
        found.append(Exchange(question.message, tuple(entering), tokens))
    return found


def _begun(tokenizer: ChatTokenizer, turns: Sequence[Turn], question: Turn) -> MessageId | None:
    """Where the last prompt of this tokenizer began: that is what its model's replicas have cached."""
    asked = (turn for turn in (question, *reversed(turns)) if turn.role == "user")
    return next((turn.begins for turn in asked if turn.tokenizer == tokenizer.fingerprint), None)


def _start(exchanges: Sequence[Exchange], begun: MessageId | None, room: int) -> int:
    """The first exchange of the prompt: where the last one began, unless that leaves too much, or so little that a
    model with a smaller context must have had that turn.
    """
    step = max(0, room // STEP_LEAVES)
    suffixes = [*accumulate((exchange.tokens for exchange in reversed(exchanges)), initial=0)][::-1]
    start = next((n for n, exchange in enumerate(exchanges) if exchange.message == begun), 0)
    if suffixes[start] <= room and (start == 0 or suffixes[start - 1] > step):
        return start
    return 0 if suffixes[0] <= room else next(n for n, tokens in enumerate(suffixes) if tokens <= step)


def _system(tokenizer: ChatTokenizer, own: str) -> list[PromptTurn]:
    """The conversation's own system prompt, or the one that the model's template begins with, if it has one."""
    text = own or tokenizer.system
    return [_system_turn(tokenizer, text)] if text else []


@lru_cache(maxsize=64)
def _system_turn(tokenizer: ChatTokenizer, text: str) -> PromptTurn:
    return PromptTurn("system", tokenizer.encode(text))


def _prompt_turn(tokenizer: ChatTokenizer, turn: Turn) -> PromptTurn:
    """The saved ids; the text encoded if it has none yet, or if another model's tokenizer made them."""
    same = turn.tokenizer == tokenizer.fingerprint
    return PromptTurn(turn.role, unpack_ids(turn.token_ids) if same else tokenizer.encode(turn.text))
