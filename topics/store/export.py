"""What the store holds, as JSON for its user: one conversation, or all of them, oldest message first.

Out: pieces of one JSON document, made page by page, so that nobody's ten thousand messages are in memory at once. Of a
conversation that is deleted meanwhile it holds what was there when its page was read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from schemas.events import TurnSaved
from schemas.ids import ConversationId, MessageId, UserId
from topics.store.contract import Conversation, Cursor, Store

FORMAT = "laneway-export-1"
PAGE = 200


def exported_user(store: Store, user: UserId, page: int = PAGE) -> Iterator[str]:
    """All that the store has of a user. Raises Unavailable, also between two pieces."""
    return _document(store, user, _lines(store, user, page), page)


def exported_conversation(store: Store, user: UserId, conversation: ConversationId, page: int = PAGE) -> Iterator[str]:
    """One conversation; nothing at all if there is none. Raises Unavailable, also between two pieces."""
    if line := store.conversation(user, conversation):
        yield from _document(store, user, [line], page)


def _document(store: Store, user: UserId, lines: Iterable[Conversation], page: int) -> Iterator[str]:
    """Begins with its first messages: of a store that cannot be read there is no first piece."""
    head = f'{{"format": {_json(FORMAT)}, "user": {_json(user)}, "conversations": ['
    before, end = f"{head}\n", f"{head}\n]}}\n"
    for line in lines:
        for piece in _conversation(store, user, line, page):
            yield before + piece
            before = ""
        before, end = ",\n", "\n]}\n"
    yield end


def _lines(store: Store, user: UserId, page: int) -> Iterator[Conversation]:
    """Each once. One that is used meanwhile moves to the list's top: it is gone through again until nothing is new."""
    seen: set[ConversationId] = set()
    known = -1
    while known < len(seen):
        known = len(seen)
        before: Cursor | None = None
        while found := store.conversations(user, page, before):
            yield from (line for line in found if line.id not in seen)
            seen |= {line.id for line in found}
            before = found[-1].cursor


def _conversation(store: Store, user: UserId, line: Conversation, page: int) -> Iterator[str]:
    head: dict[str, Any] = {
        "id": line.id,
        "title": line.title,
        "created_ms": line.created_ms,
        "updated_ms": line.updated_ms,
    }
    head["system"] = store.system(user, line.id)
    opening = f'{_json(head)[:-1]}, "messages": ['
    before, end = f"{opening}\n", f"{opening}\n]}}"
    for turns in _oldest_first(store, user, line.id, page):
        yield before + ",\n".join(_json(_message(saved)) for saved in turns)
        before, end = ",\n", "\n]}"
    yield end


def _oldest_first(
    store: Store, user: UserId, conversation: ConversationId, page: int
) -> Iterator[tuple[TurnSaved, ...]]:
    """Pages from the first to the last, though a store gives them from the last on: only their places are kept."""
    last = store.messages(user, conversation, page)
    places: list[MessageId] = []
    found = last
    while found:
        places.append(found[0].turn.message)
        found = store.messages(user, conversation, page, places[-1])
    for place in reversed(places[:-1]):
        if turns := store.messages(user, conversation, page, place):
            yield turns
    if last:
        yield last


def _message(saved: TurnSaved) -> dict[str, Any]:
    turn = saved.turn
    return {
        "id": turn.message,
        "parent": turn.parent,
        "role": turn.role,
        "text": turn.text,
        "status": turn.status,
        "reply": saved.reply,
        "model": saved.model,
        "reason": saved.reason,
        "prompt_tokens": saved.prompt_tokens,
        "completion_tokens": saved.completion_tokens,
        "created_ms": saved.created_ms,
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
