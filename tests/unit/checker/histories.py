"""A small recorded history in which all promises were kept, to be spoilt one fault at a time.

Alice posts `k` twice and Bob's message is refused; Alice's reply loses its replica after two of four tokens. A client
reads it in two connections.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from edge.view import ReplyView
from schemas import reply_records as r
from schemas.events import GenerateRequested, Turn, TurnSaved, UsageRecorded, pack_ids
from schemas.ids import MessageId, assistant_message_id, user_message_id
from tests.checker.history import Entry, History, Request, Stream, Undisturbed
from tests.checker.rules import check
from tests.unit.streams.staged import (
    DEADLINE_MS,
    T0,
    TWO,
    accepted,
    dispatched,
    finished,
    posted,
    reply_id,
    started,
    tokens,
)
from topics.catalog import MESSAGES, REPLIES, TURNS, USAGE, generate_topic
from topics.log import Place

REPLY, REPEAT, REFUSED = reply_id(1), reply_id(2), reply_id(3)
PAID, RESUME = generate_topic("main", "paid"), generate_topic("main", "resume")
TEXT = "abcd"
POSTS = (posted(1, "ask", client_key="k"), posted(2, "ask", client_key="k"), posted(3, user="bob"))
LIFE: tuple[tuple[Any, Any], ...] = (
    (REPLY, accepted(REPLY)),
    (REPEAT, r.Redirected(REPLY)),
    (REFUSED, r.Rejected("unsafe")),
    (REPLY, dispatched()),
    (REPLY, started()),
    (REPLY, tokens(1, "ab")),
    (REPLY, r.AttemptOpened(2)),
    (REPLY, tokens(3, "xx")),
    (REPLY, started(2, TWO)),
    (REPLY, tokens(3, "cd", 2, TWO)),
    (REPLY, finished(3, 2, TWO)),
    (REPLY, finished(4, 2, TWO)),
    (REPLY, r.Failed("deadline")),
)


def entries(topic: str, *keyed: tuple[Any, Any]) -> tuple[Entry, ...]:
    return tuple(
        Entry(Place(topic, 0), n, T0 + n, f"{key}/w/{n}".encode(), event) for n, (key, event) in enumerate(keyed)
    )


def turn(role: str, text: str, message: MessageId, ids: bytes = b"", parent: MessageId | None = None) -> TurnSaved:
    saved = Turn(message, parent, role, text, ids, "t", "complete")
    return TurnSaved(POSTS[0].user, POSTS[0].conversation, saved, REPLY, "tiny", T0)


ASKED = turn("user", "ask", user_message_id(REPLY), pack_ids(map(ord, "ask")))
SAID = turn("assistant", TEXT, assistant_message_id(REPLY), pack_ids(map(ord, TEXT)), user_message_id(REPLY))
REQUEST = GenerateRequested(
    reply=REPLY,
    attempt=1,
    user=POSTS[0].user,
    conversation=POSTS[0].conversation,
    model="tiny",
    pool="main",
    tier="paid",
    prompt=pack_ids(map(ord, "<ask>")),
    accepted=b"",
    sampling=POSTS[0].sampling,
    deadline_ms=0,
)
CONTINUED = replace(REQUEST, attempt=2, tier="resume", accepted=pack_ids(map(ord, "ab")))
USED = UsageRecorded(
    reply=REPLY,
    user=POSTS[0].user,
    account="acme",
    plan="paid",
    conversation=POSTS[0].conversation,
    model="tiny",
    pool="main",
    tier="paid",
    state="finished",
    reason="stop",
    attempts=2,
    prompt_tokens=5,
    cached_tokens=0,
    completion_tokens=4,
    accepted_ms=T0,
    ended_ms=T0,
    fingerprint=None,
)


def streams() -> tuple[Stream, ...]:
    """The first is cut within an event, the second goes on from the last whole one."""
    view = ReplyView(REPLY)
    for offset, (reply, record) in enumerate(LIFE):
        if reply == REPLY:
            view.apply(offset, record)
    first, second = b"".join(view.frames_after(None)), b"".join(view.frames_after(2))
    return Stream("c", REPLY, None, first[: first.index(b"id: 3")], False), Stream("c", REPLY, 2, second, True)


def clean() -> History:
    lives = entries(REPLIES, *LIFE) + entries(MESSAGES, *((post.user, post) for post in POSTS))
    money = entries(USAGE, (REPLY, USED)) + entries(TURNS, ("", ASKED), ("", SAID))
    asked = entries(PAID, (REPLY, REQUEST)) + entries(RESUME, (REPLY, CONTINUED))
    key = POSTS[0].user, POSTS[0].conversation
    return History(
        entries=lives + money + asked,
        streams=streams(),
        requests=(Request("c", "post", ("202",)), Request("c", "get", (), broken=True)),
        undisturbed={(*key, "k"): Undisturbed(tuple(map(ord, TEXT)), tuple(TEXT), "stop")},
        stored={key: (("user", "ask", "complete"), ("assistant", TEXT, "complete"))},
        left={"blocks": 0},
        context=100,
    )


def with_entries(topic: str, change: Callable[[list[Entry]], list[Entry]]) -> History:
    """The clean history with other records in one topic."""
    history = clean()
    changed = tuple(change(list(history.of(topic))))
    return replace(history, entries=tuple(e for e in history.entries if e.place.topic != topic) + changed)


def with_events(topic: str, change: Callable[[Any], Any]) -> History:
    """Every event of a topic replaced by what `change` makes of it."""
    return with_entries(topic, lambda found: [replace(entry, event=change(entry.event)) for entry in found])


def with_life(*keyed: tuple[Any, Any], at_ms: int = T0) -> History:
    """Other records in `replies`."""
    return with_entries(REPLIES, lambda _: [replace(entry, at_ms=at_ms) for entry in entries(REPLIES, *keyed)])


def broken(history: History) -> set[str]:
    """The rules that it breaks."""
    return {violation.rule for violation in check(history)}


LATE_MS = T0 + DEADLINE_MS + 60_000
