"""The tail's seam, whatever happens between two calls of its threads: readers come and go, records are written.

The log's readers stop at every call and let other actions play, as the machine's scheduler would.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.ids import ReplyId
from tests.contract.heard import PARTITIONS, Heard, minted
from topics.catalog import REPLIES
from topics.errors import Unavailable
from topics.log import HOLD_MS, Append, Place, Record
from topics.memory import MemoryLog, MemoryReader
from topics.recent import CLOCK_SLACK_MS
from topics.subscription import Subscription
from topics.tail import Tail


class PausedReader(MemoryReader):
    """Lets something else happen around every call. None of these is made under the tail's lock."""

    def __init__(self, log: PausedLog) -> None:
        super().__init__(log, committed_only=False)
        self._paused = log

    def poll(self, limit: int, _: float) -> list[Record]:
        self._paused.pause("poll")
        records = super().poll(limit, 0.0)
        self._paused.pause("poll")
        return records

    def add(self, place: Place, offset: int) -> None:
        self._paused.pause("add")
        super().add(place, offset)

    def end(self, place: Place) -> int:
        end = super().end(place)
        self._paused.pause("end")
        return end

    def offset_at(self, place: Place, timestamp_ms: int) -> int | None:
        found = super().offset_at(place, timestamp_ms)
        self._paused.pause("offset_at")
        return found


class PausedLog(MemoryLog):
    def __init__(self) -> None:
        super().__init__({REPLIES: PARTITIONS}, lambda: time.time_ns() // 1_000_000 + self.later_ms)
        self.pause: Callable[[str], object] = str
        self.later_ms = 0

    def reader(self, *, committed_only: bool = False, hold_ms: int = HOLD_MS) -> MemoryReader:
        return PausedReader(self)


class Schedule:
    """Plays actions one after the other; those up to the next `resume` in the middle of a step of the two threads."""

    def __init__(self, actions: Sequence[tuple[str, int]], visit_s: float = 0.0, *, used: bool = False) -> None:
        self.log = PausedLog()
        producer = self.log.producer()
        for partition in range(PARTITIONS if used else 0):
            producer.send(Append(Place(REPLIES, partition), b"one that was there before", b""))
        self.heard = Heard(self.log, visit_s)
        self.replies = [minted(self.heard.home), minted(self.heard.away), minted(self.heard.away)]
        self.written: defaultdict[ReplyId, list[bytes]] = defaultdict(list)
        self.subscriptions: list[Subscription] = []
        self.at_close: dict[Subscription, list[Any]] = {}
        self.at_open: dict[Subscription, int] = {}
        self._actions = iter(actions)
        self._stepping: set[str] = set()
        self.log.pause = self._pause

    def _pause(self, _: str) -> None:
        for action, which in self._actions:
            if action == "resume":
                return
            self._act(action, which)

    def _act(self, action: str, which: int) -> None:
        if action == "write":
            reply = self.replies[which % len(self.replies)]
            self.written[reply].append(b"%d" % len(self.written[reply]))
            self.heard.write(reply, self.written[reply][-1])
        elif action == "open":
            reply = self.replies[which % len(self.replies)]
            self.subscriptions.append(self.heard.tail.open(reply))
            self.at_open[self.subscriptions[-1]] = len(self.written[reply])
        elif action == "follow":
            self.replies.append(minted(self.heard.home, -self.log.later_ms))
            self.subscriptions.append(self.heard.tail.follow(self.replies[-1]))
        elif action == "mint":
            self.replies.append(minted(self.heard.away if which % 2 else self.heard.home, -self.log.later_ms))
        elif action == "wait":
            self.log.later_ms += CLOCK_SLACK_MS
        elif action == "close" and self.subscriptions:
            closed = self.subscriptions[which % len(self.subscriptions)]
            self.heard.tail.close(closed)
            self.at_close.setdefault(closed, list(self.heard.values[closed]))
        elif action in ("follow_live", "catch_up") and action not in self._stepping:
            self._stepping.add(action)
            getattr(self.heard.tail, action)(0.0)
            self._stepping.discard(action)

    def play(self) -> None:
        for action, which in self._actions:
            self._act(action, which)
        for _ in range(len(self.subscriptions) + 2):  # one partition's past at a time
            self.heard.tail.catch_up(0.0)
            self.heard.tail.follow_live(0.0)


ACTIONS = st.sampled_from(("write", "open", "close", "follow", "mint", "wait", "follow_live", "catch_up", "resume"))
VISITS = st.sampled_from((0.0, 60.0))  # a partition is given up at once, or never


@settings(max_examples=300, deadline=None)
@given(
    actions=st.lists(st.tuples(ACTIONS, st.integers(0, 5)), min_size=10, max_size=60),
    visit_s=VISITS,
    used=st.booleans(),
)
def test_however_threads_and_readers_interleave_each_gets_every_record_once(
    actions: list[tuple[str, int]], visit_s: float, used: bool
) -> None:
    schedule = Schedule(actions, visit_s, used=used)
    schedule.play()
    for subscription in schedule.subscriptions:
        got, written = schedule.heard.values[subscription], schedule.written[subscription.reply]
        if subscription in schedule.at_close:
            assert got == schedule.at_close[subscription] == written[: len(got)]
        else:
            assert got == written
            assert subscription.live
            if schedule.at_open.get(subscription):  # else it would be said that there is no such reply
                assert schedule.heard.when_live[subscription]


def test_what_was_read_for_one_who_left_does_not_reach_the_one_who_came_then() -> None:
    go_on = [("resume", 0)] * 2
    live = [("open", 1), ("catch_up", 0), *go_on, ("write", 1), ("follow_live", 0), *go_on]
    schedule = Schedule([*live, ("close", 0), ("open", 1), ("catch_up", 0), *go_on * 4])
    schedule.play()
    left, came = schedule.subscriptions
    assert (schedule.heard.values[left], schedule.heard.values[came]) == ([], [b"0"])


def test_who_resumes_a_reply_that_was_followed_here_asks_the_log_nothing() -> None:
    log, asked = PausedLog(), list[str]()
    heard = Heard(log)
    log.pause = asked.append
    reply = minted(heard.home)
    heard.write(reply, b"1", b"2")
    heard.run(lambda: not heard.tail.follow_live(0.0))
    subscription = heard.tail.open(reply)
    heard.run(lambda: heard.values[subscription] == [b"1", b"2"])
    assert subscription.live and "offset_at" not in asked
    heard.close()


def test_a_reply_that_was_not_read_here_is_looked_for_in_the_log() -> None:
    log, asked = PausedLog(), list[str]()
    heard = Heard(log)
    log.pause = asked.append
    subscription = heard.tail.open(minted(heard.home))
    heard.run(lambda: subscription.live)
    assert "offset_at" in asked
    heard.close()


def test_what_lay_in_a_home_partition_before_it_was_followed_is_read() -> None:
    heard = Heard(PausedLog())
    reply = minted(heard.home)
    heard.write(reply, b"1")
    heard.tail = Tail(heard.log, heard._deliver, [heard.home])
    heard.write(reply, b"2")
    opened = heard.tail.open(reply)
    heard.run(lambda: heard.values[opened] == [b"1", b"2"])
    heard.close()


def test_after_one_of_a_partition_has_resumed_the_others_ask_the_log_nothing() -> None:
    log, asked = PausedLog(), list[str]()
    heard = Heard(log)
    first, second = minted(heard.away), minted(heard.away)
    heard.write(first, b"1")
    heard.write(second, b"2")
    opened = heard.tail.open(first)
    heard.run(lambda: opened.live)
    log.pause = asked.append
    opened = heard.tail.open(second)
    heard.write(second, b"3")
    heard.run(lambda: heard.values[opened] == [b"2", b"3"])
    assert "offset_at" not in asked
    heard.close()


def test_a_log_that_does_not_answer_ends_the_subscription_with_the_reason() -> None:
    schedule = Schedule([])
    heard, closed = schedule.heard, schedule.heard.tail.open(schedule.replies[1])
    failing = heard.tail.open(schedule.replies[2])

    def fail(call: str) -> None:
        if call == "offset_at":
            heard.tail.close(closed)
            raise Unavailable("gone")

    schedule.log.pause = fail
    heard.tail.catch_up(0.0)
    heard.tail.catch_up(0.0)
    assert list(heard.failures) == [failing]
    assert failing.closed and heard.values[failing] == []


def test_a_crowd_that_opens_replies_of_one_partition_reads_its_past_once() -> None:
    log, adds = PausedLog(), list[str]()
    heard = Heard(log)
    replies = [minted(heard.away) for _ in range(50)]
    for reply in replies:
        heard.write(reply, b"x")
    log.pause = adds.append
    subscriptions = [heard.tail.open(reply) for reply in replies]
    heard.run(lambda: all(heard.values[subscription] == [b"x"] for subscription in subscriptions))
    assert adds.count("offset_at") == 1
    heard.close()
