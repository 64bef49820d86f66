"""The quota ledger: what one user has used and reserved of one model, in whole requests and tokens.

`reserve` at admission, `settle` at the reply's end. In: a Ledger, the limits, log time. Out: a Ledger. Pure, so a
replay keeps the same balances. Invariants: no amount is negative; what is reserved is released exactly once, by
the end of its reply or, when that is never told, after LOST_MS; what is settled counts in the window that reserved it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from schemas.events import ReplySettled
from schemas.ids import ReplyId
from schemas.quota_records import (
    INPUT,
    OUTPUT,
    REPLIES,
    REQUESTS,
    TOKENS,
    Balance,
    Bucket,
    Ledger,
    Limit,
    Reserved,
    Spent,
)
from streams.windows import CALENDAR, Window, window_of
from topics.catalog import RESUME_WINDOW_MS, SECOND

# The reply log keeps a reply for RESUME_WINDOW_MS and some minutes; after twice that nobody can settle it any more.
LOST_MS = 2 * RESUME_WINDOW_MS
RUNNING_RETRY_MS = 2 * SECOND

MEASURES: Mapping[str, Callable[[Bucket | Reserved], int]] = {
    REQUESTS: lambda amount: amount.requests,
    INPUT: lambda amount: amount.input,
    OUTPUT: lambda amount: amount.output,
    TOKENS: lambda amount: amount.input + amount.output,
}


Key = tuple[str, str]  # of a window: its word and, of days and months, its time zone


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits of one user and model, and the zone of their days and months."""

    limits: tuple[Limit, ...]
    time_zone: str = "UTC"

    @property
    def count_tokens(self) -> bool:
        """Whether a reply's length has to be known before it begins."""
        return any(limit.what in (OUTPUT, TOKENS) for limit in self.limits)

    def window(self, text: str) -> Window:
        return window_of(text, self.time_zone)

    def key(self, window: str, time_zone: str = "") -> Key:
        """Days and months of two zones are two windows; one that slides is the same in all."""
        return window, (time_zone or self.time_zone) if window in CALENDAR else ""


@dataclass(frozen=True, slots=True)
class Request:
    """What a message wants: its prompt's tokens, `asked` tokens of a reply or, if that is 0, at most `most` of them."""

    reply: ReplyId
    input: int
    asked: int
    most: int
    cached_percent: int = 100


@dataclass(frozen=True, slots=True)
class Granted:
    """`max_tokens` is what the reply may have; its reservation is in the balances."""

    ledger: Ledger
    max_tokens: int
    balances: tuple[Balance, ...]


@dataclass(frozen=True, slots=True)
class Short:
    """The limit that does not allow it, and when it will as far as is known; None: it never does."""

    balance: Balance
    needed: int
    retry_after_ms: int | None


@dataclass(frozen=True, slots=True)
class _Standing:
    """A limit with what counts for it now, used and reserved apart; and each amount with the bucket that it is in."""

    limit: Limit
    window: Window | None
    used: int
    reserved: int
    amounts: tuple[tuple[int, int], ...] = ()
    held: tuple[tuple[int, int], ...] = ()

    def balance(self, model: str) -> Balance:
        limit = self.limit
        newest = max((start_ms for start_ms, amount in (*self.amounts, *self.held) if amount), default=None)
        reset_ms = self.window.leaves(newest) if self.window and newest is not None else 0
        return Balance(model, limit.what, limit.window, limit.most, self.used, self.reserved, reset_ms)

    def holding(self, held: Reserved) -> _Standing:
        """The same with one more reply."""
        if self.window is None:
            return _Standing(self.limit, None, self.used, self.reserved + 1)
        amount = MEASURES[self.limit.what](held)
        more = (*self.held, (self.window.bucket(held.at_ms), amount))
        return _Standing(self.limit, self.window, self.used, self.reserved + amount, self.amounts, more)

    def room(self) -> int:
        return self.limit.most - self.used - self.reserved

    def retry_after_ms(self, needed: int, now_ms: int) -> int | None:
        """Until so much fits: a reply that runs may give it back soon, else buckets have to leave."""
        short = needed + self.used - self.limit.most
        if needed > self.limit.most:
            return None
        if short <= 0 or self.window is None:
            return RUNNING_RETRY_MS
        for start_ms, amount in self.amounts:
            short -= amount
            if short <= 0:
                return max(1, self.window.leaves(start_ms) - now_ms)
        raise AssertionError(f"{self.limit} with {self.amounts} never has room for {needed}")


def reserve(ledger: Ledger, rules: Rules, request: Request, now_ms: int) -> Granted | Short:
    """Reserves prompt and reply if all limits have room for them; a refusal changes nothing."""
    before = current(ledger, rules, now_ms)
    ledger = replace(before, open=tuple(held for held in before.open if held.reply != request.reply))
    standings = _standings(ledger, rules, now_ms)
    needs = _needs(request, request.asked or 1)
    refusals = [_short(ledger.model, s, needs[s.limit.what], now_ms) for s in standings]
    if short := [refusal for refusal in refusals if refusal is not None]:
        return max(short, key=lambda refusal: (refusal.retry_after_ms is None, refusal.retry_after_ms or 0))
    output = request.asked or min([request.most, *(_room_for_output(s, request) for s in standings)])
    held = Reserved(request.reply, now_ms, request.input, output, request.cached_percent)
    told = tuple(standing.holding(held).balance(ledger.model) for standing in standings)
    return Granted(Ledger(ledger.model, ledger.spent, (*ledger.open, held)), output, told)


def settle(ledger: Ledger, rules: Rules, settled: ReplySettled, now_ms: int) -> Ledger:
    """Releases the reply's reservation and counts what it used; nothing for a reply that holds none, as a repeat."""
    ledger = replace(ledger, open=_told_in_time(ledger.open, now_ms))
    held = next((held for held in ledger.open if held.reply == settled.reply), None)
    if held is None:
        return ledger
    cost = charge(settled, held.cached_percent)
    spent = tuple(
        Spent(window, _added(buckets, Bucket(window_of(window, time_zone).bucket(held.at_ms), *cost)), time_zone)
        for (window, time_zone), buckets in _by_key(ledger, rules).items()
    )
    return replace(ledger, spent=spent, open=tuple(other for other in ledger.open if other is not held))


def charge(settled: ReplySettled, cached_percent: int) -> tuple[int, int, int]:
    """Requests, input and output that a reply is counted at. One that was shed, or failed before its first token, has
    given its user nothing and costs nothing.
    """
    output = max(0, settled.completion_tokens)
    if settled.state == "shed" or (settled.state == "failed" and not output):
        return 0, 0, 0
    prompt = max(0, settled.prompt_tokens)
    cached = min(prompt, max(0, settled.cached_tokens))
    return 1, prompt - cached + -(-cached * cached_percent // 100), output


def balances(ledger: Ledger, rules: Rules, now_ms: int) -> tuple[Balance, ...]:
    """Every limit as it stands, in the order of the rules."""
    ledger = current(ledger, rules, now_ms)
    return tuple(standing.balance(ledger.model) for standing in _standings(ledger, rules, now_ms))


def current(ledger: Ledger, rules: Rules, now_ms: int) -> Ledger:
    """The ledger without what no longer counts, with a place for each window of the rules.

    A window that they do not have stays while anything in it counts: a user may come with two plans in turn.
    """
    known = {key: _counting(buckets, window_of(*key), now_ms) for key, buckets in _by_key(ledger, rules).items()}
    wanted = dict.fromkeys((rules.key(limit.window) for limit in rules.limits if limit.window), ())
    kept = {key: buckets for key, buckets in (wanted | known).items() if buckets or key in wanted}
    spent = tuple(Spent(window, buckets, time_zone) for (window, time_zone), buckets in kept.items())
    return Ledger(ledger.model, spent, _told_in_time(ledger.open, now_ms))


def _by_key(ledger: Ledger, rules: Rules) -> dict[Key, tuple[Bucket, ...]]:
    return {rules.key(spent.window, spent.time_zone): spent.buckets for spent in ledger.spent}


def _counting(buckets: Iterable[Bucket], window: Window, now_ms: int) -> tuple[Bucket, ...]:
    since_ms = window.since(now_ms)
    return tuple(bucket for bucket in buckets if bucket.start_ms >= since_ms)


def _told_in_time(reserved: Iterable[Reserved], now_ms: int) -> tuple[Reserved, ...]:
    return tuple(held for held in reserved if now_ms - held.at_ms <= LOST_MS)


def _standings(ledger: Ledger, rules: Rules, now_ms: int) -> list[_Standing]:
    """Of a ledger that is current."""
    spent = _by_key(ledger, rules)
    return [
        _standing(ledger, limit, rules.window(limit.window), spent[rules.key(limit.window)], now_ms)
        if limit.window
        else _running(ledger, limit)
        for limit in rules.limits
    ]


def _running(ledger: Ledger, limit: Limit) -> _Standing:
    return _Standing(limit, None, 0, len(ledger.open))


def _standing(ledger: Ledger, limit: Limit, window: Window, buckets: Iterable[Bucket], now_ms: int) -> _Standing:
    measure, since_ms = MEASURES[limit.what], window.since(now_ms)
    amounts = tuple((bucket.start_ms, measure(bucket)) for bucket in buckets)
    starts = ((window.bucket(held.at_ms), held) for held in ledger.open)
    held = tuple((start_ms, measure(held)) for start_ms, held in starts if start_ms >= since_ms)
    return _Standing(limit, window, _sum(amounts), _sum(held), amounts, held)


def _needs(request: Request, output: int) -> Mapping[str, int]:
    return {REQUESTS: 1, REPLIES: 1, INPUT: request.input, OUTPUT: output, TOKENS: request.input + output}


def _short(model: str, standing: _Standing, needed: int, now_ms: int) -> Short | None:
    if needed <= standing.room():
        return None
    return Short(standing.balance(model), needed, standing.retry_after_ms(needed, now_ms))


def _room_for_output(standing: _Standing, request: Request) -> int:
    match standing.limit.what:
        case "tokens":
            return standing.room() - request.input
        case "output":
            return standing.room()
    return request.most


def _added(buckets: Iterable[Bucket], more: Bucket) -> tuple[Bucket, ...]:
    by_start = {bucket.start_ms: bucket for bucket in buckets}
    if before := by_start.get(more.start_ms):
        more = Bucket(
            more.start_ms, before.requests + more.requests, before.input + more.input, before.output + more.output
        )
    return tuple(sorted((by_start | {more.start_ms: more}).values(), key=lambda bucket: bucket.start_ms))


def _sum(amounts: Iterable[tuple[int, int]]) -> int:
    return sum(amount for _, amount in amounts)
