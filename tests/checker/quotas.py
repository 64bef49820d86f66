"""Quotas: no limit is overrun, none refuses what it has room for, a refusal costs nothing, and when all has ended what
is used is the sum of the usage records, to the token, and nothing is reserved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from schemas.events import MessagePosted
from schemas.ids import ReplyId, UserId
from schemas.quota_records import Balance, Limit, UsageAsked
from schemas.reply_records import Rejected, UsageTold
from tests.checker.history import Entry, History
from tests.checker.ledger import Held, Ledger, Moment, Range, partitions, reserved, used
from tests.checker.telling import Told
from tests.checker.violation import Violation
from topics.catalog import REPLIES

# Of these a message wants one, whatever it says; how many tokens a refused one wanted is not in the log.
COUNTED_BY_ONE = ("requests", "replies")


def quota_violations(
    history: History, told: Mapping[ReplyId, Told], posts: Mapping[ReplyId, list[Entry]]
) -> Iterator[Violation]:
    for partition in partitions(history):
        yield from Judged(history, partition, told, posts).violations()


class Judged:
    """One partition of `messages`, in which plans hold."""

    def __init__(
        self,
        history: History,
        partition: int,
        told: Mapping[ReplyId, Told],
        posts: Mapping[ReplyId, list[Entry]],
    ) -> None:
        self._ledger = Ledger(history, partition, told)
        self._told = told
        self._answers = {
            entry.reply: entry.event for entry in history.of(REPLIES) if isinstance(entry.event, UsageTold)
        }
        self._posts = [entries[0] for entries in posts.values() if entries[0].place.partition == partition]
        self._held: defaultdict[tuple[UserId, str], list[Held]] = defaultdict(list)
        for held in filter(None, map(self._ledger.held, self._posts)):
            self._held[held.user, held.model].append(held)

    def violations(self) -> Iterator[Violation]:
        for posted in self._posts:
            told = self._told.get(posted.event.reply)
            if told and told.first and told.accepted:
                yield from self._accepted(posted, told)
            elif told and told.first and isinstance(told.first.event, Rejected) and told.first.event.reason == "quota":
                yield from self._refused(posted, told.first)
        yield from self._ends()
        yield from self._balances()

    def _accepted(self, posted: Entry, told: Told) -> Iterator[Violation]:
        accepted, asked = told.accepted, posted.event
        assert accepted and told.first
        moment = self._ledger.moment(posted, told.first.at_ms)
        for limit in self._limits(asked, accepted.model, moment):
            counted, held_ = self._amounts(asked, accepted.model, limit, moment, told.reply)
            taken = counted.least + held_.least
            if taken > limit.most:
                yield Violation("overrun", told.reply, (posted.offset,), f"{taken} of {limit}", f"{limit.most} at most")
        if accepted.max_tokens > (asked.sampling.max_tokens or accepted.max_tokens):
            yield Violation("max_tokens", told.reply, (), accepted.max_tokens, asked.sampling.max_tokens)
        yield from self._told_balances(posted, accepted.quota, moment, told.reply)
        if (accepted.asked_model or accepted.model) != asked.model:
            yield Violation("mini", told.reply, (), accepted.asked_model, asked.model)
        plan = self._ledger.rules.plan(asked.plan, posted.offset)
        if accepted.asked_model and (plan is None or plan.mini != accepted.model):
            yield Violation("mini", told.reply, (), accepted.model, plan and plan.mini)
        if accepted.asked_model and not self._short(asked, asked.model, moment):
            yield Violation("mini", told.reply, (), f"{accepted.model}, not the model that was asked", "no limit met")

    def _refused(self, posted: Entry, refusal: Entry) -> Iterator[Violation]:
        asked, moment = posted.event, self._ledger.moment(posted, refusal.at_ms)
        yield from self._told_balances(posted, refusal.event.quota, moment, None)
        if not self._short(asked, asked.model, moment):
            yield Violation("refused", asked.reply, (posted.offset,), refusal.event, "a reply: no limit was met")

    def _short(self, asked: MessagePosted, model: str, moment: Moment) -> bool:
        """Whether a limit may have had no room for it."""
        before, after = (self._of(asked, model, at) for at in (moment.first, moment.last + 1))
        taken = {
            limit: sum(amount.most for amount in self._amounts(asked, model, limit, moment, None))
            for limit in (*before, *after)
        }
        return any(limit.what not in COUNTED_BY_ONE or most + 1 > limit.most for limit, most in taken.items())

    def _limits(self, asked: MessagePosted, model: str, moment: Moment) -> list[Limit]:
        """Those that held throughout."""
        after = self._of(asked, model, moment.last + 1)
        return [limit for limit in self._of(asked, model, moment.first) if limit in after]

    def _of(self, asked: MessagePosted, model: str, offset: int) -> tuple[Limit, ...]:
        return self._ledger.rules.limits(asked.user, asked.plan, model, offset)

    def _told_balances(
        self, asked: Entry, balances: Sequence[Balance], moment: Moment, own: ReplyId | None
    ) -> Iterator[Violation]:
        for balance in balances:
            limit = Limit(balance.model, balance.what, balance.limit, balance.window)
            expected = self._amounts(asked.event, balance.model, limit, moment, own)
            if balance.used not in expected[0] or balance.reserved not in expected[1]:
                yield Violation("balance", asked.event.reply, (asked.offset,), balance, expected)

    def _amounts(
        self, asked: MessagePosted | UsageAsked, model: str, limit: Limit, moment: Moment, own: ReplyId | None
    ) -> tuple[Range, Range]:
        """What is used of a limit, and what reserved."""
        held, rules = self._held[asked.user, model], self._ledger.rules
        since = rules.since(asked.user, asked.plan, model, limit.window, moment.last + 1)
        limited = rules.since(asked.user, asked.plan, model, None, moment.last + 1)
        return used(limit, held, moment, since), reserved(limit, held, moment, own, limited)

    def _ends(self) -> Iterator[Violation]:
        """Intake is told of every end what its usage record says, however often."""
        for held in (held for of_model in self._held.values() for held in of_model):
            entries, usage = self._ledger.settled.get(held.reply, []), self._ledger.usage.get(held.reply)
            if not entries:
                yield Violation("settled", held.reply, (), "intake was not told of the end", "ReplySettled")
            for settled in (entry.event for entry in entries):
                found = settled.state, settled.prompt_tokens, settled.cached_tokens, settled.completion_tokens
                if usage and found != (
                    expected := (usage.state, usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
                ):
                    yield Violation("settled", held.reply, (), found, expected)

    def _balances(self) -> Iterator[Violation]:
        """Every question is answered where it lies; of each user who has used something one comes after all ends."""
        asked_last: dict[UserId, int] = {}
        for entry in self._ledger.entries:
            if isinstance(asked := entry.event, UsageAsked):
                asked_last[asked.user] = entry.offset
                told = self._answers.get(asked.reply)
                if told is None:
                    yield Violation("usage asked", asked.reply, (entry.offset,), "no answer", "UsageTold")
                    continue
                moment = Moment(entry.offset, entry.offset, entry.at_ms, entry.at_ms)
                yield from self._told_balances(entry, told.balances, moment, None)
                yield from self._listed(entry, told)
        for held in (held for of_model in self._held.values() for held in of_model):
            limits = self._ledger.rules.plans and held.user in asked_last
            if limits and (held.settled is None or held.settled > asked_last[held.user]):
                yield Violation("usage asked", held.reply, (), "not since it ended", "a question for the balances")

    def _listed(self, entry: Entry, told: UsageTold) -> Iterator[Violation]:
        """The limits that hold there, and no other."""
        asked = entry.event
        models = {balance.model for balance in told.balances} | {
            model for user, model in self._held if user == asked.user
        }
        found = {(b.model, b.what, b.window, b.limit) for b in told.balances}
        expected = {
            (model, limit.what, limit.window, limit.most)
            for model in models
            for limit in self._ledger.rules.limits(asked.user, asked.plan, model, entry.offset)
        }
        if found != expected:
            yield Violation("limits", asked.reply, (entry.offset,), found, expected)
