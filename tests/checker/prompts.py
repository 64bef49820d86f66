"""What replicas were asked, against what the log says was said before: exact token ids, none left out, none of another
branch.

A prompt has the turns of its branch in their order, each by the ids that it was saved with; a continuation has the
prompt of the first attempt, and the tokens that the log had accepted by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schemas.events import GenerateRequested, unpack_ids
from schemas.ids import ReplyId
from schemas.tokenizer import ChatTokenizer, PromptTurn
from tests.checker.branches import Branches, Said
from tests.checker.history import Entry, History
from tests.checker.telling import Told
from tests.checker.violation import Violation


def prompt_violations(history: History, told: dict[ReplyId, Told], branches: Branches) -> Iterator[Violation]:
    if history.context is None:
        return
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
        if request.reply in branches.of_replies and request.attempt == 1:
            yield from _turns(entry, branches, history.template, history.context)


def _turns(entry: Entry, branches: Branches, template: ChatTokenizer | None, context: int) -> Iterator[Violation]:
    prompt, turns = unpack_ids(entry.event.prompt), branches.turns(entry.event.reply)
    if sum(len(ids) for _, ids in turns) * 2 > context:
        return  # the oldest may have been dropped to make it fit
    if template is None:
        yield from _in_order(entry, prompt, turns)
        return
    system = branches.of_replies[entry.event.reply].system or template.system
    beginning = [PromptTurn("system", template.encode(system))] if system else []
    expected = template.prompt([*beginning, *(PromptTurn(role, ids) for role, ids in turns)])
    if len(expected) * 2 <= context and prompt != expected:
        yield Violation("prompt", entry.event.reply, (entry.offset,), prompt, expected)


def _in_order(entry: Entry, prompt: tuple[int, ...], turns: Sequence[Said]) -> Iterator[Violation]:
    at = 0
    for turn in (ids for _, ids in turns if ids):
        found = next((n for n in range(at, len(prompt)) if prompt[n : n + len(turn)] == turn), None)
        if found is None:
            yield Violation("prompt", entry.event.reply, (entry.offset,), f"no {turn} after {at}", turns)
            return
        at = found + len(turn)
