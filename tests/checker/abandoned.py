"""Replies that nobody waits for: none is given up while somebody listens or may still come back, and none goes on long
after the last has gone, unless it was asked to.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from schemas import reply_records as r
from schemas.events import EdgeBeat, SupervisorBeat
from schemas.ids import ReplyId
from tests.checker.history import Entry, History, Waits
from tests.checker.listening import DEAD_BEATS, Listener, beats_of, listeners_of, surely_heard
from tests.checker.telling import Told
from tests.checker.violation import Violation
from topics.catalog import EDGES, REPLIES

BEAT_MS = 500
SLACK_MS = 50
LATE_BEATS = 5


def abandonment_violations(history: History, told: Mapping[ReplyId, Told]) -> Iterator[Violation]:
    waits, edges = history.waits, history.of(EDGES)
    if waits is None:
        return
    records: defaultdict[ReplyId, list[Entry]] = defaultdict(list)
    for entry in history.of(REPLIES):
        if entry.reply and isinstance(entry.event, r.ListenerAttached | r.ListenerDetached):
            records[entry.reply].append(entry)
    for one in told.values():
        if one.accepted is None or one.end is None:
            continue
        if (one.state, one.reason) == ("stopped", "abandoned"):
            yield from _too_soon(one, records[one.reply], waits, edges)
        yield from _too_late(one, records[one.reply], waits, edges)


def _too_soon(told: Told, records: Sequence[Entry], waits: Waits, edges: Sequence[Entry]) -> Iterator[Violation]:
    """As far as its supervisor had read: it needs so many of its beats with nobody there, one after the other."""
    accepted, end, seen = told.accepted, told.end, told.end_record.seen
    assert accepted is not None and end is not None and told.first is not None
    read = [entry for entry in records if entry.offset <= seen]
    came = [entry for entry in read if isinstance(entry.event, r.ListenerAttached)]
    if accepted.on_disconnect == "continue":
        yield Violation("abandoned", told.reply, (end.offset,), "an end", "none: it was to go on for nobody")
        return
    after_ms = waits.cancel_ms if accepted.on_disconnect == "cancel" and came else waits.grace_ms
    begin_ms = max([told.first.at_ms, *(entry.at_ms for entry in came)])
    beats = beats_of(edges, _writer(end))
    there = [listener for listener in listeners_of(records) if listener.attached.offset <= seen]
    heard = sorted(time for listener in there for time in surely_heard(listener, beats, end.at_ms))
    alone_ms = _longest_alone(begin_ms, end.at_ms, heard)
    if alone_ms < after_ms - BEAT_MS - SLACK_MS:
        yield Violation("abandoned", told.reply, (end.offset,), f"after {alone_ms} ms alone", f"after {after_ms} ms")


def _longest_alone(begin_ms: int, end_ms: int, heard: Sequence[tuple[int, int]]) -> int:
    longest, since_ms = 0, begin_ms
    for began_ms, over_ms in heard:
        longest = max(longest, began_ms - since_ms)
        since_ms = max(since_ms, over_ms)
    return max(longest, end_ms - since_ms)


def _too_late(told: Told, records: Sequence[Entry], waits: Waits, edges: Sequence[Entry]) -> Iterator[Violation]:
    """By the beats of any supervisor, counted from when all was well and the last listener was surely gone."""
    accepted, end = told.accepted, told.end
    assert accepted is not None and end is not None and told.first is not None
    if accepted.on_disconnect == "continue":
        return
    listeners = listeners_of(records)
    gone_ms = max([waits.healed_ms, told.first.at_ms, *(_gone_ms(one, edges) for one in listeners)])
    after_ms = waits.cancel_ms if accepted.on_disconnect == "cancel" and listeners else waits.grace_ms
    since = [entry for entry in edges if gone_ms < entry.at_ms < end.at_ms]
    beats = Counter(e.event.incarnation for e in since if isinstance(e.event, SupervisorBeat))
    most = max(beats.values(), default=0)
    if most > after_ms / BEAT_MS + LATE_BEATS:
        yield Violation("abandoned", told.reply, (end.offset,), f"open for {most} beats alone", f"{after_ms} ms")


def _gone_ms(listener: Listener, edges: Sequence[Entry]) -> int:
    """When its edge was told that it had gone, or had been silent for so long that it was dead by any count."""
    last_ms = max((e.at_ms for e in edges if _beat_of(e) == listener.edge), default=listener.attached.at_ms)
    silent_ms = last_ms + 2 * DEAD_BEATS * BEAT_MS
    return min(silent_ms, listener.detached.at_ms) if listener.detached else silent_ms


def _beat_of(entry: Entry) -> str | None:
    return entry.event.incarnation if isinstance(entry.event, EdgeBeat) else None


def _writer(entry: Entry) -> str:
    return (entry.key or b"").decode().split("/")[1]
