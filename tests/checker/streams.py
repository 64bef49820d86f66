"""What clients were sent against what the log says: every byte of every stream, and each client's text as a whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from schemas.ids import ReplyId
from tests.checker.history import Stream
from tests.checker.sse import Event, asks_to_retry, parse
from tests.checker.telling import Told
from tests.checker.violation import Violation

UNNUMBERED = ("queued", "preempted", "resuming", "error")


def stream_violations(streams: Iterable[Stream], told: Mapping[ReplyId, Told]) -> Iterator[Violation]:
    by_client: defaultdict[tuple[str, ReplyId], list[Stream]] = defaultdict(list)
    for stream in streams:
        by_client[stream.client, stream.reply].append(stream)
    for (client, reply), of_it in by_client.items():
        found = told.get(reply)
        if found is None or found.accepted is None:
            yield Violation("stream", reply, (), f"{client} was sent a stream", "none of a reply that was not accepted")
            continue
        yield from _client(found, of_it)


def _client(told: Told, streams: list[Stream]) -> Iterator[Violation]:
    """Streams of one client follow each other without a gap, and their text is the log's as far as it goes."""
    newest, text, ended = None, "", False
    for stream in streams:
        if stream.after != newest:
            yield Violation("cursor", told.reply, (), stream.after, newest)
        try:
            events = parse(stream.body)
        except ValueError as error:
            yield Violation("stream", told.reply, (), f"{stream.body!r}: {error}", "events that can be read")
            return
        yield from _events(told, stream, events)
        numbered = [event for event in events if event.id is not None]
        newest = numbered[-1].id if numbered else newest
        text += "".join(event.data["text"] for event in numbered if event.name == "token")
        ended = ended or (bool(numbered) and numbered[-1].name not in ("token", "accepted"))
    whole = "".join(told.texts)
    if not whole.startswith(text) or (ended and text != whole):
        yield Violation("text", told.reply, (), (streams[0].client, text), whole)


def _events(told: Told, stream: Stream, events: list[Event]) -> Iterator[Violation]:
    due = 0 if stream.after is None else stream.after + 1
    for event in events:
        if event.id is None:
            if event.name not in UNNUMBERED:
                yield Violation("event", told.reply, (), event, f"one of {UNNUMBERED}, or an id")
            continue
        expected = _expected(told, due)
        if (event.id, event.name, _shown(event)) != expected:
            yield Violation("event", told.reply, (), (stream.client, event), expected)
            return
        due += 1
    ended = due == len(told.texts) + 2
    excused = asks_to_retry(stream.body) or (bool(events) and events[-1].name == "error")
    if stream.whole and not (ended or excused):
        yield Violation("stream", told.reply, (), f"{stream.client}: over after event {due - 1}", "an end")


def _expected(told: Told, n: int) -> tuple[int, str, Any] | None:
    """The event numbered `n` of a reply, as the log has it."""
    if n == 0:
        return 0, "accepted", told.reply
    if n <= len(told.texts):
        return n, "token", told.texts[n - 1]
    if n == len(told.texts) + 1 and told.end is not None and told.accepted is not None:
        return n, told.state, (told.reason, told.accepted.prompt_tokens, len(told.texts))
    return None


def _shown(event: Event) -> Any:
    data = event.data
    if event.name == "accepted":
        return data["reply"]
    if event.name == "token":
        return data["text"]
    reason = next((data[name] for name in ("finish_reason", "category", "reason") if name in data), None)
    return reason, data["usage"]["prompt_tokens"], data["usage"]["completion_tokens"]
