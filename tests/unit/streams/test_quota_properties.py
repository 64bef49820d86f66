"""The quota ledger whatever happens: nothing negative, nothing lost, nothing counted twice."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.events import ReplySettled
from schemas.ids import ReplyId
from schemas.quota_records import Ledger, Limit
from streams.quota import LOST_MS, Granted, Rules, balances, charge, reserve, settle
from streams.windows import zone_of
from tests.unit.streams.ledgers import T, end, only, request
from tests.unit.streams.test_windows import ms

MINUTE, HOUR = 60_000, 3_600_000
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"])
WHATS = st.sampled_from(["requests", "input", "output", "tokens"])
WINDOWS = st.sampled_from(["90s", "15m", "5h", "day", "month"])
LIMITS = st.lists(st.builds(Limit, st.just("m"), WHATS, st.integers(0, 400), WINDOWS), min_size=1, max_size=4)
# (milliseconds that pass, which request or end, tokens of the prompt, of the reply, asked for)
STEPS = st.lists(
    st.tuples(
        st.integers(0, 20 * MINUTE),
        st.sampled_from(["ask", "ask", "end", "again"]),
        st.integers(0, 60),
        st.integers(0, 60),
        st.integers(0, 60),
    ),
    max_size=40,
)


@dataclass
class Life:
    """A ledger and, beside it, the plain list of what was admitted when and what it cost."""

    rules: Rules
    ledger: Ledger = field(default_factory=lambda: Ledger("m"))
    now: int = T
    asked: int = 0
    open: dict[ReplyId, tuple[int, int, int]] = field(default_factory=dict)
    used: list[tuple[int, int, int, int]] = field(default_factory=list)
    ends: list[ReplySettled] = field(default_factory=list)

    def step(self, passes: int, what: str, prompt: int, completion: int, asked: int) -> None:
        self.now += passes
        if what == "ask":
            self.asked += 1
            wanted = request(self.asked, prompt, asked)
            if isinstance(found := reserve(self.ledger, self.rules, wanted, self.now), Granted):
                self.ledger = found.ledger
                assert found.balances == balances(found.ledger, self.rules, self.now)
                self.open[wanted.reply] = (self.now, prompt, found.max_tokens)
        elif what == "end" and self.open:
            reply = sorted(self.open)[prompt % len(self.open)]
            at, held_input, held_output = self.open.pop(reply)
            told = end(int(reply.split("-")[1][12:], 16), prompt=held_input, completion=min(completion, held_output))
            if self.now - at <= LOST_MS:
                self.used.append((at, *charge(told, 100)))
            self.ends.append(told)
            self.ledger = settle(self.ledger, self.rules, told, self.now)
        elif what == "again" and self.ends:
            self.ledger = settle(self.ledger, self.rules, self.ends[prompt % len(self.ends)], self.now)


def counted(rules: Rules, limit: Limit, entries: list[tuple[int, int, int, int]], now: int) -> int:
    """What the plain list says of a limit."""
    window = rules.window(limit.window)
    pick = {"requests": (1, 0, 0), "input": (0, 1, 0), "output": (0, 0, 1), "tokens": (0, 1, 1)}[limit.what]
    live = [e for e in entries if window.bucket(e[0]) >= window.since(now)]
    return sum(a * b for e in live for a, b in zip(pick, e[1:], strict=True))


@settings(max_examples=50)
@given(limits=LIMITS, steps=STEPS, zone=ZONES)
def test_balances_are_what_was_admitted_and_used_and_never_over_the_limit(
    limits: list[Limit], steps: list[tuple[int, str, int, int, int]], zone: str
) -> None:
    life = Life(Rules(tuple(limits), zone))
    for step in steps:
        life.step(*step)
        held = [(at, 1, i, o) for at, i, o in life.open.values()]
        for limit, balance in zip(life.rules.limits, balances(life.ledger, life.rules, life.now), strict=True):
            assert balance.used == counted(life.rules, limit, life.used, life.now) >= 0
            recent = [entry for entry in held if life.now - entry[0] <= LOST_MS]
            assert balance.reserved == counted(life.rules, limit, recent, life.now) >= 0
            assert balance.used + balance.reserved <= balance.limit


@settings(max_examples=50)
@given(limits=LIMITS, order=st.permutations(range(6)), delays=st.lists(st.integers(0, HOUR), min_size=6, max_size=6))
def test_late_and_repeated_ends_leave_the_same_balances(
    limits: list[Limit], order: list[int], delays: list[int]
) -> None:
    rules, start = Rules(tuple(limits), "Europe/Berlin"), Ledger("m")
    for n in range(6):
        if isinstance(found := reserve(start, rules, request(n, 3 * n, 5), T + n * MINUTE), Granted):
            start = found.ledger
    prompt, late = start, start
    for n in range(6):
        prompt = settle(prompt, rules, end(n, prompt=3 * n, completion=n), T + n * MINUTE + 1)
    for n, delay in zip((*order, *order), (*delays, *delays), strict=True):
        late = settle(late, rules, end(n, prompt=3 * n, completion=n), T + 10 * MINUTE + delay)
    now = T + 10 * MINUTE + HOUR
    assert balances(late, rules, now) == balances(prompt, rules, now)
    assert (late.open, prompt.open) == ((), ())


@given(
    zone=ZONES,
    word=st.sampled_from(["day", "month"]),
    before=st.integers(1, 30 * MINUTE),
    after=st.integers(0, 30 * MINUTE),
    at=st.integers(1_700_000_000_000, 1_900_000_000_000),
)
def test_a_reply_across_midnight_counts_in_the_day_and_month_that_admitted_it(
    zone: str, word: str, before: int, after: int, at: int
) -> None:
    rules = Rules((Limit("m", "tokens", 100, word),), zone)
    window = rules.window(word)
    midnight = window.leaves(window.bucket(at))
    found = reserve(Ledger("m"), rules, request(1, 40, 60), midnight - before)
    assert isinstance(found, Granted)
    assert only(balances(found.ledger, rules, midnight - 1)).reserved == 100
    fresh = reserve(found.ledger, rules, request(2, 40, 60), midnight)
    assert isinstance(fresh, Granted)
    done = settle(fresh.ledger, rules, end(1, prompt=40, completion=60), midnight + after)
    balance = only(balances(done, rules, midnight + after))
    assert (balance.used, balance.reserved) == (0, 100)


def test_a_day_of_25_hours_has_one_days_quota() -> None:
    rules = Rules((Limit("m", "requests", 24, "day"),), "Europe/Berlin")
    start, ledger = ms(2026, 10, 25, zone="Europe/Berlin"), Ledger("m")
    outcomes = []
    for hour in range(26):
        found = reserve(ledger, rules, request(hour), start + hour * HOUR)
        outcomes.append(isinstance(found, Granted))
        ledger = settle(found.ledger if isinstance(found, Granted) else ledger, rules, end(hour), start + hour * HOUR)
    assert outcomes == [True] * 24 + [False, True]
    assert zone_of("Europe/Berlin").key == "Europe/Berlin"


@settings(max_examples=25)
@given(window=st.sampled_from(["60s", "90s", "3m"]), most=st.integers(1, 70))
def test_one_call_a_second_for_three_windows_still_resets(window: str, most: int) -> None:
    rules, ledger, seconds = Rules((Limit("m", "requests", most, window),), "UTC"), Ledger("m"), []
    length = {"60s": 60, "90s": 90, "3m": 180}[window]
    for second in range(3 * length):
        now = T + second * 1000
        if isinstance(found := reserve(ledger, rules, request(second), now), Granted):
            ledger = settle(found.ledger, rules, end(second), now)
            seconds.append(second)
    for begin in range(2 * length):
        assert sum(begin <= second < begin + length for second in seconds) <= most
    slack = length + length // 30 + 1  # the window and its slices
    assert all(
        sum(begin <= s < begin + slack for s in seconds) >= min(most, length) for begin in range(2 * length - slack)
    )
