"""Quotas reckoned a second time, from the log alone: what is used and what is reserved of a limit at a moment.

When intake decided a message is not written down: it was after it had the message, and before its answer lay in the
log. So the amounts of a moment are ranges. A question for balances is answered where it lies, and then only a window
that ends meanwhile leaves a range. Reservations whose end is not told for two hours are not reckoned with.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from schemas.events import ReplySettled, UsageRecorded
from schemas.ids import ReplyId, UserId
from schemas.quota_records import Limit, LimitSet, Plan, PlansLoaded
from tests.checker.history import Entry, History
from tests.checker.telling import Told
from topics.catalog import MESSAGES, USAGE

UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
SLICES = 60
FREE = "free"


@dataclass(frozen=True, slots=True)
class Moment:
    """Between two records of a partition of `messages`, both of them in it; and their log times."""

    first: int
    last: int
    from_ms: int
    to_ms: int


@dataclass(frozen=True, slots=True)
class Held:
    """An accepted reply: when it was decided, what it reserved, where its end was told, and what it used."""

    reply: ReplyId
    user: UserId
    model: str
    decided: Moment
    reserved: tuple[int, int]
    settled: int | None
    used: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Range:
    least: int
    most: int

    def __contains__(self, amount: int) -> bool:
        return self.least <= amount <= self.most


@dataclass(frozen=True)
class Rules:
    """What limits the users of one partition, as its records set it."""

    plans: Sequence[tuple[int, Mapping[str, Plan]]]
    own: Mapping[UserId, Sequence[tuple[int, LimitSet]]]

    def plan(self, name: str, offset: int) -> Plan | None:
        plans = next((plans for at, plans in reversed(self.plans) if at < offset), {})
        return plans.get(name) or plans.get(FREE)

    def limits(self, user: UserId, plan: str, model: str, offset: int) -> tuple[Limit, ...]:
        """Those that hold at a record: of each kind the user's own instead of the plan's, those for the model alone
        instead of those for each.
        """
        own = next((set_.limits for at, set_ in reversed(self.own.get(user, ())) if at < offset), ())
        held, of_plan = _for(own, model), self.plan(plan, offset)
        kinds = {limit.what for limit in held}
        return (*(limit for limit in _for(of_plan.limits if of_plan else (), model) if limit.what not in kinds), *held)

    def since(self, user: UserId, plan: str, model: str, window: str | None, offset: int) -> int:
        """Where a window, or any limit at all, first held: before, nothing was counted for it."""
        changed = sorted(at + 1 for at, _ in (*self.plans, *self.own.get(user, ())) if at < offset)
        for at in changed:
            if any(window in (None, limit.window) for limit in self.limits(user, plan, model, at)):
                return at
        return offset


def _for(limits: Sequence[Limit], model: str) -> tuple[Limit, ...]:
    return tuple(x for x in limits if x.model == model) or tuple(x for x in limits if x.model == "*")


class Ledger:
    """Of one partition of `messages`."""

    def __init__(self, history: History, partition: int, told: Mapping[ReplyId, Told]) -> None:
        self.entries = [entry for entry in history.of(MESSAGES) if entry.place.partition == partition]
        self._times = [entry.at_ms for entry in self.entries]
        self.rules = _rules(self.entries)
        self.settled: dict[ReplyId, list[Entry]] = {}
        for entry in self.entries:
            if isinstance(entry.event, ReplySettled):
                self.settled.setdefault(entry.event.reply, []).append(entry)
        self.usage = {e.event.reply: e.event for e in history.of(USAGE) if isinstance(e.event, UsageRecorded)}
        self._told = told

    def moment(self, posted: Entry, answered_ms: int) -> Moment:
        """When a message was decided whose answer was in the log at that time."""
        last = max(bisect_right(self._times, answered_ms) - 1, 0)
        return Moment(posted.offset, max(posted.offset, self.entries[last].offset), posted.at_ms, answered_ms)

    def held(self, posted: Entry) -> Held | None:
        """What the reply to this message holds or has used."""
        told = self._told.get(posted.event.reply)
        if told is None or told.accepted is None or told.first is None:
            return None
        accepted, settled = told.accepted, self.settled.get(told.reply)
        plan = self.rules.plan(posted.event.plan, posted.offset)
        used = _charge(self.usage.get(told.reply), plan.cached_percent if plan else 100)
        return Held(
            told.reply,
            accepted.user,
            accepted.model,
            self.moment(posted, told.first.at_ms),
            (accepted.prompt_tokens, accepted.max_tokens),
            settled[0].offset if settled else None,
            used,
        )


def used(limit: Limit, held: Sequence[Held], moment: Moment, since: int = 0) -> Range:
    """What replies that had ended have used of it. Before `since` it may not have counted."""
    least = most = 0
    for one in held:
        if one.settled is not None and one.settled <= moment.last and limit.window:
            amount, (sure, possible) = _measure(limit.what, one.used), counts(limit.window, one.decided, moment)
            least += amount if sure and one.settled < moment.first and one.decided.first >= since else 0
            most += amount if possible else 0
    return Range(least, most)


def reserved(limit: Limit, held: Sequence[Held], moment: Moment, own: ReplyId | None = None, since: int = 0) -> Range:
    """What replies hold of it whose end was not told, `own` among them, whose decision this is. What was decided before
    `since` may hold nothing.
    """
    least = most = 0
    for one in held:
        amount = 1 if limit.what == "replies" else _measure(limit.what, (1, *one.reserved))
        sure, possible = counts(limit.window, one.decided, moment) if limit.window else (True, True)
        before = one.decided.last < moment.first or one.reply == own
        before = before and one.decided.first >= since
        least += amount if sure and before and (one.settled is None or one.settled > moment.last) else 0
        open_ = one.settled is None or one.settled >= moment.first
        most += amount if possible and open_ and one.decided.first <= moment.last else 0
    return Range(least, most)


def counts(window: str, decided: Moment, now: Moment) -> tuple[bool, bool]:
    """Whether what was reserved then surely counts now, and whether it may."""
    if window in ("day", "month"):
        form = "%Y%m%d" if window == "day" else "%Y%m"
        then = {_date(at, form) for at in (decided.from_ms, decided.to_ms)}
        today = {_date(at, form) for at in (now.from_ms, now.to_ms)}
        return len(then | today) == 1, bool(then & today)
    length_ms = int(window[:-1]) * UNIT_MS[window[-1]]
    width_ms = length_ms // SLICES
    slice_of = lambda at_ms: at_ms // width_ms  # noqa: E731
    surely = slice_of(decided.from_ms) >= slice_of(now.to_ms - length_ms)
    return surely, slice_of(decided.to_ms) >= slice_of(now.from_ms - length_ms)


def _date(at_ms: int, form: str) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(form)


def _charge(usage: UsageRecorded | None, cached_percent: int) -> tuple[int, int, int]:
    """Requests, input and output; what gave nothing costs nothing."""
    if usage is None or usage.state == "shed" or (usage.state == "failed" and usage.completion_tokens == 0):
        return 0, 0, 0
    cached = (usage.cached_tokens * cached_percent + 99) // 100
    return 1, usage.prompt_tokens - usage.cached_tokens + cached, usage.completion_tokens


def _measure(what: str, amounts: tuple[int, int, int]) -> int:
    requests, given, said = amounts
    return {"requests": requests, "input": given, "output": said, "tokens": given + said}[what]


def _rules(entries: Sequence[Entry]) -> Rules:
    plans = [(e.offset, {p.name: p for p in e.event.plans}) for e in entries if isinstance(e.event, PlansLoaded)]
    own: dict[UserId, list[tuple[int, LimitSet]]] = {}
    for entry in entries:
        if isinstance(entry.event, LimitSet):
            own.setdefault(entry.event.user, []).append((entry.offset, entry.event))
    return Rules(plans, own)


def partitions(history: History) -> Iterator[int]:
    """Those in which plans hold."""
    yield from sorted({e.place.partition for e in history.of(MESSAGES) if isinstance(e.event, PlansLoaded)})
