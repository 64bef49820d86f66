"""The quotas of one partition of `messages`: the plans that hold in it, and what each of its users has used.

In: PlansLoaded, LimitSet, ReplySettled, UsageAsked, and each message that is about to be accepted. All of it lies in
the partition, so a replay keeps the same balances. Who has no limit leaves nothing here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from schemas.events import ReplySettled
from schemas.ids import ConversationId, UserId
from schemas.quota_records import (
    COUNTED,
    EACH_MODEL,
    REPLIES,
    REQUESTS,
    TOKENS,
    Balance,
    Ledger,
    Limit,
    LimitSet,
    Plan,
    PlansLoaded,
    QuotaKept,
    UsageAsked,
)
from schemas.reply_records import Rejected, UsageTold
from streams.bounds import check_name
from streams.quota import Request, Rules, Short, balances, reserve, settle
from streams.windows import LONGEST_MS, window_of, zone_of
from topics.catalog import DAY, INTAKE_STATE
from topics.log import Place
from topics.outputs import Output

DEFAULT_PLAN = "free"
TIER_OF_PLAN = {"business": "paid", "paid": "paid", "free": "free"}
TIERS = ("paid", "free", "background")
MOST_LIMITS = 200
MOST_AMOUNT = 10**15
FORGOTTEN_MS = LONGEST_MS + DAY
QUOTA, PLANS = ConversationId(":quota"), "/:plans"  # no user can name a conversation so


@dataclass(frozen=True, slots=True)
class Grant:
    """What a reply may have; `kept` is the user's quotas with its reservation, None where nothing limits."""

    max_tokens: int
    quota: tuple[Balance, ...] = ()
    kept: QuotaKept | None = None


@dataclass(frozen=True, slots=True)
class Allowance:
    """One user under a plan."""

    plan: Plan
    kept: QuotaKept

    @property
    def time_zone(self) -> str:
        return (self.kept.override.time_zone if self.kept.override else "") or self.plan.time_zone

    def rules(self, model: str) -> Rules:
        """A limit of the user's own replaces those of its kind in the plan."""
        own = _of_model(self.kept.override.limits, model) if self.kept.override else ()
        kinds = {limit.what for limit in own}
        of_plan = tuple(limit for limit in _of_model(self.plan.limits, model) if limit.what not in kinds)
        return Rules((*of_plan, *own), self.time_zone)

    def grant(self, model: str, request: Request, now_ms: int) -> Grant | Rejected:
        """Reserves what a message may use of a model, or says which limit does not allow it."""
        rules = self.rules(model)
        if not rules.limits:
            return Grant(request.asked or request.most)
        if rules.count_tokens:
            request = replace(request, most=min(request.most, self.plan.default_max_tokens))
        request = replace(request, cached_percent=self.plan.cached_percent)
        before = _ledger(self.kept, model)
        found = reserve(before, rules, request, now_ms)
        if isinstance(found, Short):
            told = _next_limits(balances(before, rules, now_ms))
            return Rejected("quota", _words(model, found), found.retry_after_ms, quota=told)
        kept = replace(_with(self.kept, found.ledger), touched_ms=now_ms)
        return Grant(found.max_tokens, _next_limits(found.balances), kept)

    def balances(self, models: Iterable[str], now_ms: int) -> tuple[Balance, ...]:
        return tuple(
            balance for model in models for balance in balances(_ledger(self.kept, model), self.rules(model), now_ms)
        )


NO_PLAN = Plan("", "", (), time_zone="UTC")
UNLIMITED = Allowance(NO_PLAN, QuotaKept(UserId(""), 0, ""))


@dataclass(slots=True)
class Allowances:
    """Users by when their quotas were last touched, the longest ago first; `changed` since the last commit."""

    plans: dict[str, Plan] = field(default_factory=dict)
    kept: OrderedDict[UserId, QuotaKept] = field(default_factory=OrderedDict)
    changed: set[UserId] = field(default_factory=set)
    plans_changed: bool = False

    def of(self, user: UserId, plan: str = "") -> Allowance:
        """A plan that is not there is taken for the free one; none given, for the last one seen."""
        kept = self.kept.get(user) or QuotaKept(user, 0, plan)
        kept = replace(kept, plan=plan) if plan and kept.plan != plan else kept
        return Allowance(self.plans.get(kept.plan) or self.plans.get(DEFAULT_PLAN) or NO_PLAN, kept)

    def put(self, kept: QuotaKept | None) -> None:
        if kept is not None and self.kept.get(kept.user) != kept:
            self.kept[kept.user] = kept
            self.kept.move_to_end(kept.user)
            self.changed.add(kept.user)

    def change(self, changed: PlansLoaded | LimitSet, now_ms: int) -> None:
        """Raises ValueError for limits that cannot be reckoned with."""
        if isinstance(changed, PlansLoaded):
            for plan in changed.plans:
                check_plan(plan)
            self.plans = {plan.name: plan for plan in changed.plans}
            self.plans_changed = True
            return
        check_limits(changed.limits, changed.time_zone or "UTC")
        empty = not changed.limits and not changed.time_zone
        self.put(replace(self.of(changed.user).kept, override=None if empty else changed, touched_ms=now_ms))

    def settle(self, settled: ReplySettled, now_ms: int) -> None:
        allowance = self.of(settled.user)
        for ledger in allowance.kept.ledgers:
            if any(held.reply == settled.reply for held in ledger.open):
                done = settle(ledger, Rules((), allowance.time_zone), settled, now_ms)
                self.put(replace(_with(allowance.kept, done), touched_ms=now_ms))

    def tell(self, asked: UsageAsked, models: Collection[str], now_ms: int) -> UsageTold:
        allowance = self.of(asked.user, asked.plan)
        told = allowance.balances(models, now_ms)
        return UsageTold(asked.user, allowance.plan.name, allowance.time_zone, told, tuple(models))

    def forget_idle(self, now_ms: int) -> None:
        """Nothing of a user counts after the longest window, but for limits of their own."""
        while self.kept:
            user, kept = next(iter(self.kept.items()))
            if now_ms - kept.touched_ms < FORGOTTEN_MS:
                return
            del self.kept[user]
            self.changed.add(user)
            if kept.override:
                self.put(QuotaKept(user, now_ms, kept.plan, override=kept.override))

    def restore(self, key: str, event: object) -> bool:
        """Takes back a record of the changelog, None for a tombstone; False for one of other state."""
        user, _, name = key.rpartition("/")
        match event:
            case PlansLoaded():
                self.plans = {plan.name: plan for plan in event.plans}
            case QuotaKept():
                self.put(event)
            case None if name == QUOTA:
                self.kept.pop(UserId(user), None)
            case _:
                return False
        return True

    def restored(self) -> None:
        self.kept = OrderedDict(sorted(self.kept.items(), key=lambda item: item[1].touched_ms))
        self.changed.clear()
        self.plans_changed = False

    def changes(self, partition: int) -> Iterator[Output]:
        place = Place(INTAKE_STATE, partition)
        if self.plans_changed:
            yield Output(place, PLANS, PlansLoaded(tuple(self.plans.values())))
        for user in sorted(self.changed):
            yield Output(place, f"{user}/{QUOTA}", self.kept.get(user))
        self.changed.clear()
        self.plans_changed = False


def check_plan(plan: Plan) -> None:
    """Raises ValueError, with the value and what was expected."""
    if not plan.name:
        raise ValueError("a plan has no name")
    if plan.tier not in TIERS:
        raise ValueError(f"tier {plan.tier!r}: expected one of {', '.join(TIERS)}")
    if not 0 <= plan.cached_percent <= 100:
        raise ValueError(f"cached_percent {plan.cached_percent}: expected 0 to 100")
    if not 1 <= plan.default_max_tokens <= MOST_AMOUNT:
        raise ValueError(f"default_max_tokens {plan.default_max_tokens}: expected 1 to {MOST_AMOUNT}")
    check_limits(plan.limits, plan.time_zone)


def check_limits(limits: tuple[Limit, ...], time_zone: str) -> None:
    """Raises ValueError, with the value and what was expected."""
    zone_of(time_zone)
    if len(limits) > MOST_LIMITS:
        raise ValueError(f"{len(limits)} limits: expected at most {MOST_LIMITS}")
    for limit in limits:
        check_name("a limit's model", limit.model)
        if limit.what not in COUNTED:
            raise ValueError(f"{limit.what!r}: expected one of {', '.join(COUNTED)}")
        if not 0 <= limit.most <= MOST_AMOUNT:
            raise ValueError(f"{limit.what} {limit.most}: expected 0 to 10^15")
        if limit.what != REPLIES:
            window_of(limit.window, time_zone)
        elif limit.window:
            raise ValueError(f"replies {limit.most}/{limit.window}: expected a number alone, of replies at once")


def _of_model(limits: tuple[Limit, ...], model: str) -> tuple[Limit, ...]:
    named = tuple(limit for limit in limits if limit.model == model)
    return named or tuple(limit for limit in limits if limit.model == EACH_MODEL)


def _ledger(kept: QuotaKept, model: str) -> Ledger:
    return next((ledger for ledger in kept.ledgers if ledger.model == model), Ledger(model))


def _with(kept: QuotaKept, ledger: Ledger) -> QuotaKept:
    others = (other for other in kept.ledgers if other.model != ledger.model)
    return replace(kept, ledgers=tuple(sorted((*others, ledger), key=lambda each: each.model)))


def _next_limits(told: tuple[Balance, ...]) -> tuple[Balance, ...]:
    """Of requests and of tokens the limit that leaves least."""
    kinds = ([b for b in told if b.what == REQUESTS], [b for b in told if b.what not in (REQUESTS, REPLIES)])
    return tuple(min(kind, key=lambda balance: balance.remaining) for kind in kinds if kind)


def _words(model: str, short: Short) -> str:
    balance = short.balance
    if balance.what == REPLIES:
        when = ": there may be room when one ends" if balance.limit else ""
        return f"{balance.reserved} replies of model {model!r} run for you, {balance.limit} at once are allowed{when}"
    what = balance.what if balance.what in (REQUESTS, TOKENS) else f"{balance.what} tokens"
    return (
        f"{balance.limit} {what} of model {model!r} in {balance.window} are allowed: {balance.used} are used, "
        f"{balance.reserved} held for replies that run, and this needs {short.needed}{_when(short)}"
    )


def _when(short: Short) -> str:
    """What to do about it."""
    if short.needed > short.balance.limit:
        return ", more than there ever is: ask for less"
    if short.retry_after_ms is None:
        return ""
    return f": there may be room in {-(-short.retry_after_ms // 1_000)} s"
