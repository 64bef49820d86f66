"""What replicas were asked, against what the log says was said before: exact token ids, none left out.

A prompt has the turns of its conversation in their order, each by the ids that it was saved with, but for answers that
failed and for flagged ones with their questions; a continuation has the prompt of the first attempt, and the tokens
that the log had accepted by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schemas.events import GenerateRequested, TurnSaved, unpack_ids
from schemas.ids import MessageId, ReplyId
from tests.checker.deletions import Lives
from tests.checker.history import Entry, History
from tests.checker.telling import Told
from tests.checker.violation import Violation
from topics.catalog import TURNS


def prompt_violations(history: History, told: dict[ReplyId, Told], lives: Lives) -> Iterator[Violation]:
    if history.context is None:
        return
    saved = {entry.event.turn.message: entry.event for entry in history.of(TURNS) if isinstance(entry.event, TurnSaved)}
    prompts: dict[ReplyId, bytes] = {}
    for entry in history.requests_to_generate:
        request: GenerateRequested = entry.event
        of_it = told.get(request.reply)
        if of_it is None or of_it.accepted is None:
            yield Violation("prompt", request.reply, (entry.offset,), "a request", "none of what was not accepted")
            continue
        if prompts.setdefault(request.reply, request.prompt) != request.prompt:
            yield Violation("prompt", request.reply, (entry.offset,), "two prompts", "one")
        accepted = unpack_ids(request.accepted)
        if accepted != of_it.ids[: len(accepted)] and not of_it.accepted.checked:
            yield Violation("prompt", request.reply, (entry.offset,), accepted, of_it.ids)
        yield from _turns(entry, _before(of_it, told, saved, lives), history.context)


def _before(
    this: Told, told: dict[ReplyId, Told], saved: dict[MessageId, TurnSaved], lives: Lives
) -> list[tuple[int, ...]]:
    """The ids of all turns of the conversation before this reply, since it was deleted, then of its own question."""
    assert this.first is not None and this.accepted is not None
    conversation, began = (this.accepted.user, this.accepted.conversation), _began(this)
    life = lives.of_replies.get(this.reply)
    earlier = [each for each in told.values() if each.accepted and _began(each) <= began]
    earlier = [each for each in earlier if lives.of_replies.get(each.reply) == life]
    turns: list[tuple[int, ...]] = []
    for each in sorted(earlier, key=_began):
        if each.accepted and (each.accepted.user, each.accepted.conversation) == conversation:
            question, answer = each.accepted.user_message, each.accepted.assistant_message
            status = saved[answer].turn.status if answer in saved and each is not this else None
            messages = {"complete": (question, answer), "stopped": (question, answer), "flagged": ()}
            there = messages.get(status or "", (question,))
            turns += [unpack_ids(saved[message].turn.token_ids) for message in there if message in saved]
    return [turn for turn in turns if turn]


def _began(told: Told) -> int:
    return told.first.at_ms if told.first else 0


def _turns(entry: Entry, turns: Sequence[tuple[int, ...]], context: int) -> Iterator[Violation]:
    prompt, at = unpack_ids(entry.event.prompt), 0
    if sum(map(len, turns)) * 2 > context:
        return  # the oldest may have been dropped to make it fit
    for turn in turns:
        found = next((n for n in range(at, len(prompt)) if prompt[n : n + len(turn)] == turn), None)
        if found is None:
            yield Violation("prompt", entry.event.reply, (entry.offset,), f"no {turn} after {at}", turns)
            return
        at = found + len(turn)
