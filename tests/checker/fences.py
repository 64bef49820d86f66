"""Attempts that were closed for the next one: each of them needs a reason that the log shows.

Who has the attempt was silent for three beats of a supervisor, which are at least half a second apart; or was replaced;
or said that it gave the attempt up; or stood still with something to do; or left a hole in its tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from schemas.events import ReplicaBeat, SupervisorBeat
from schemas.ids import ReplyId
from tests.checker.history import Entry, History
from tests.checker.telling import Fence, Told
from tests.checker.violation import Violation
from topics.catalog import REPLICAS

SILENT_MS = 2 * 500
STUCK_MS = 9 * 500
SLACK_MS = 50


def fence_violations(history: History, told: Mapping[ReplyId, Told]) -> Iterator[Violation]:
    beats: defaultdict[str, list[Entry]] = defaultdict(list)
    of_slots: defaultdict[tuple[str, int], list[Entry]] = defaultdict(list)
    looks: list[Entry] = []
    for entry in history.of(REPLICAS):
        if isinstance(entry.event, ReplicaBeat):
            beats[entry.event.incarnation].append(entry)
            of_slots[entry.event.pool, entry.event.slot].append(entry)
        elif isinstance(entry.event, SupervisorBeat):
            looks.append(entry)
    if not beats:
        return
    for one in told.values():
        for fence in one.fences:
            for incarnation in _read_of(fence, looks) if not fence.hole else ():
                before = [beat for beat in beats[incarnation] if beat.at_ms <= fence.at.at_ms]
                if before and not (
                    _replaced(before, of_slots, fence)
                    or _lost(one.reply, before, fence)
                    or _looked_silent(before, looks, fence)
                ):
                    yield Violation("fence", one.reply, (fence.at.offset,), f"{incarnation} is fenced", "it lives")


def _read_of(fence: Fence, looks: Sequence[Entry]) -> Iterator[str]:
    """Who had the attempt at the last beat of its supervisor: whoever was given it after that may be unknown to it."""
    writer = (fence.at.key or b"").decode().split("/")[1]
    looked_ms = [look.at_ms for look in looks if look.event.incarnation == writer and look.at_ms <= fence.at.at_ms]
    return (one for one, given_ms in fence.serving.items() if not looked_ms or given_ms <= looked_ms[-1])


def _replaced(before: Sequence[Entry], of_slots: Mapping[tuple[str, int], list[Entry]], fence: Fence) -> bool:
    first = before[0]
    others = of_slots[first.event.pool, first.event.slot]
    return any(
        first.offset < other.offset
        and other.at_ms <= fence.at.at_ms
        and other.event.incarnation != first.event.incarnation
        for other in others
    )


def _lost(reply: ReplyId, before: Sequence[Entry], fence: Fence) -> bool:
    named = any((d.reply, d.attempt) == (reply, fence.attempt) for beat in before for d in beat.event.dropped)
    times = [*(beat.at_ms for beat in before), fence.at.at_ms]
    silent = any(
        later - earlier >= SILENT_MS - SLACK_MS and later >= fence.given_ms for earlier, later in pairwise(times)
    )
    return named or silent or _stood_still(before, fence)


def _looked_silent(before: Sequence[Entry], looks: Sequence[Entry], fence: Fence) -> bool:
    """At the last beat of a supervisor, its clock: it need not have read the replica's next beat, which came later."""
    last = {look.event.incarnation: look for look in looks if look.at_ms <= fence.at.at_ms}
    for look in last.values():
        heard = [beat.at_ms for beat in before if beat.offset < look.offset]
        if heard and look.at_ms - heard[-1] >= SILENT_MS - SLACK_MS:
            return True
    return False


def _stood_still(before: Sequence[Entry], fence: Fence) -> bool:
    since_ms, step = None, None
    times = [*(beat.at_ms for beat in before[1:]), fence.at.at_ms]
    for beat, until_ms in zip(before, times, strict=True):
        busy = beat.event.running + beat.event.waiting > 0
        if beat.event.step != step or not busy:
            since_ms, step = None, beat.event.step
        if busy and since_ms is None:
            since_ms = beat.at_ms
        if since_ms is not None and until_ms - since_ms >= STUCK_MS - SLACK_MS and until_ms >= fence.given_ms:
            return True
    return False
