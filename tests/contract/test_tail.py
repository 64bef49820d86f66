"""What `topics/tail.py` promises, on the in-memory twin and on a real Kafka: every record of a reply, once, in order.

The twin's readers also let anything happen between two calls of a tail's threads, as the machine's scheduler would.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.ids import ReplyId
from tests.contract.clusters import PATIENCE_S, Cluster, KafkaCluster, MemoryCluster, wait_for, write
from topics.catalog import REPLIES
from topics.errors import TopicsError, Unavailable
from topics.log import Log, Place, Record
from topics.memory import MemoryLog, MemoryReader
from topics.tail import Delivery, Subscription, Tail

PARTITIONS = 64
UNUSED = count(0, 2)
NUMBERS = count(1)


class Heard:
    """What a tail has delivered, and a test's own two partitions: `home` is followed from the start, `away` not."""

    def __init__(self, log: Log) -> None:
        self.log, self.home = log, next(UNUSED) % PARTITIONS
        self.away = self.home + 1
        self.values: defaultdict[Subscription, list[bytes | None]] = defaultdict(list)
        self.live: set[Subscription] = set()
        self.failures: dict[Subscription, TopicsError | None] = {}
        self.tail = Tail(log, self._deliver, home=[self.home])

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self.values[delivery.subscription] += [record.value for record in delivery.records]
            if delivery.live:
                self.live.add(delivery.subscription)
            if delivery.failure:
                self.failures[delivery.subscription] = delivery.failure

    def write(self, reply: ReplyId, *values: bytes, to: int | None = None, key: bytes | None = None) -> None:
        partition = int(reply[3:6], 16) if to is None else to
        write(self.log, Place(REPLIES, partition), *values, key=f"{reply}/w/0".encode() if key is None else key)

    def run(self, until: Callable[[], bool]) -> None:
        def turn() -> bool:
            self.tail.catch_up(0.01)
            self.tail.follow_live(0.01)
            return until()

        wait_for(turn)


def minted(partition: int, age_ms: int = 0) -> ReplyId:
    created = time.time_ns() // 1_000_000 - age_ms
    return ReplyId(f"r00{partition:03x}-{created:012x}{next(NUMBERS):020x}-00000000")


@pytest.fixture
def heard(cluster: Cluster) -> Iterator[Heard]:
    if isinstance(cluster, MemoryCluster):
        cluster.log.create(REPLIES, PARTITIONS)
    else:
        assert isinstance(cluster, KafkaCluster)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        config = {"message.timestamp.type": "LogAppendTime"}
        try:
            admin.create_topics([NewTopic(REPLIES, PARTITIONS, 1, config=config)])[REPLIES].result(PATIENCE_S)
        except KafkaException as error:
            assert error.args[0].name() == "TOPIC_ALREADY_EXISTS"
    heard = Heard(cluster.log)
    yield heard
    heard.tail.stop()


def test_a_fresh_reply_is_followed_as_it_is_written(heard: Heard) -> None:
    reply = minted(heard.home)
    heard.write(minted(heard.home), b"another's")
    subscription = heard.tail.follow(reply)
    heard.write(reply, b"1", b"2")
    heard.run(lambda: len(heard.values[subscription]) == 2)
    heard.write(reply, b"3")
    heard.run(lambda: len(heard.values[subscription]) == 3)
    assert heard.values == {subscription: [b"1", b"2", b"3"]}
    assert subscription.live


@pytest.mark.parametrize("where", ["home", "away"])
def test_a_reply_opened_in_the_middle_has_its_past_and_then_goes_on(heard: Heard, where: str) -> None:
    reply = minted(getattr(heard, where))
    heard.write(reply, b"1", b"2")
    subscription = heard.tail.open(reply)
    heard.write(reply, b"3")
    heard.run(lambda: len(heard.values[subscription]) == 3)
    assert subscription.live and subscription in heard.live
    heard.write(reply, b"4")
    heard.run(lambda: len(heard.values[subscription]) == 4)
    assert heard.values[subscription] == [b"1", b"2", b"3", b"4"]


def test_a_reply_that_nobody_has_written_is_live_and_empty(heard: Heard) -> None:
    subscription = heard.tail.open(minted(heard.away))
    heard.run(lambda: subscription in heard.live)
    assert heard.values[subscription] == []


def test_three_readers_of_one_reply_all_get_all_of_it(heard: Heard) -> None:
    reply = minted(heard.home)
    subscriptions = [heard.tail.follow(reply)]
    for n in range(2):
        heard.write(reply, b"%d" % n)
        subscriptions.append(heard.tail.open(reply))
        heard.run(lambda: len(subscriptions) == len(heard.live | {s for s in subscriptions if s.live}))
    heard.write(reply, b"end")
    heard.run(lambda: all(len(heard.values[subscription]) == 3 for subscription in subscriptions))
    assert [heard.values[subscription] for subscription in subscriptions] == [[b"0", b"1", b"end"]] * 3


def test_records_of_others_are_not_delivered(heard: Heard) -> None:
    reply, neighbour = minted(heard.home), minted(heard.home)

    def foreign() -> None:
        heard.write(neighbour, b"neighbour")
        heard.write(reply, b"elsewhere", to=heard.away)
        heard.write(reply, b"no slash", key=reply.encode())
        heard.write(reply, b"longer name", key=reply.encode() + b"0/w/0")

    heard.write(reply, b"1")
    foreign()
    visitor, subscription = heard.tail.open(minted(heard.away)), heard.tail.open(reply)
    heard.run(lambda: {visitor, subscription} <= heard.live)
    foreign()
    heard.write(reply, b"2")
    heard.run(lambda: len(heard.values[subscription]) >= 2)
    assert (heard.values[subscription], heard.values[visitor]) == ([b"1", b"2"], [])


def test_a_closed_subscription_hears_nothing_and_another_begins_anew(heard: Heard) -> None:
    reply = minted(heard.away)
    heard.write(reply, b"1")
    closed = heard.tail.open(reply)
    heard.run(lambda: closed in heard.live)
    heard.tail.close(closed)
    reopened = heard.tail.open(reply)
    heard.write(reply, b"2")
    heard.run(lambda: len(heard.values[reopened]) == 2)
    heard.tail.close(closed)
    heard.write(reply, b"3")
    heard.run(lambda: len(heard.values[reopened]) == 3)
    assert (heard.values[closed], heard.values[reopened]) == ([b"1"], [b"1", b"2", b"3"])


def test_of_an_expired_beginning_what_is_left_is_delivered(heard: Heard, cluster: Cluster) -> None:
    reply = minted(heard.away, age_ms=3_600_000)
    heard.write(reply, b"1", b"2", b"3")
    end = cluster.log.reader().end(Place(REPLIES, heard.away))
    cluster.delete_before(Place(REPLIES, heard.away), end - 1)
    subscription = heard.tail.open(reply)
    heard.run(lambda: subscription in heard.live)
    assert heard.values[subscription] == [b"3"]


def test_a_partition_that_does_not_exist_ends_the_subscription_and_no_other(heard: Heard) -> None:
    lost, found = heard.tail.open(minted(PARTITIONS + 9)), heard.tail.open(minted(heard.away))
    heard.run(lambda: found in heard.live)
    assert isinstance(heard.failures[lost], TopicsError)
    assert lost.closed and found not in heard.failures


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
        super().__init__({REPLIES: PARTITIONS}, lambda: time.time_ns() // 1_000_000)
        self.pause: Callable[[str], object] = str

    def reader(self, *, committed_only: bool = False) -> MemoryReader:
        return PausedReader(self)


class Schedule:
    """Plays actions one after the other; those up to the next `resume` in the middle of a step of the two threads."""

    def __init__(self, actions: Sequence[tuple[str, int]]) -> None:
        self.log = PausedLog()
        self.heard = Heard(self.log)
        self.replies = [minted(self.heard.home), minted(self.heard.away), minted(self.heard.away)]
        self.written: defaultdict[ReplyId, list[bytes]] = defaultdict(list)
        self.subscriptions: list[Subscription] = []
        self.at_close: dict[Subscription, list[Any]] = {}
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
            self.subscriptions.append(self.heard.tail.open(self.replies[which % len(self.replies)]))
        elif action == "follow":
            self.replies.append(minted(self.heard.home))
            self.subscriptions.append(self.heard.tail.follow(self.replies[-1]))
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
        for _ in range(len(self.subscriptions) + 2):
            self.heard.tail.catch_up(0.0)
            self.heard.tail.follow_live(0.0)


ACTIONS = st.sampled_from(("write", "open", "close", "follow", "follow_live", "catch_up", "resume"))


@settings(max_examples=300)
@given(actions=st.lists(st.tuples(ACTIONS, st.integers(0, 5)), min_size=10, max_size=60))
def test_however_threads_and_readers_interleave_each_gets_every_record_once(actions: list[tuple[str, int]]) -> None:
    schedule = Schedule(actions)
    schedule.play()
    for subscription in schedule.subscriptions:
        got, written = schedule.heard.values[subscription], schedule.written[subscription.reply]
        if subscription in schedule.at_close:
            assert got == schedule.at_close[subscription] == written[: len(got)]
        else:
            assert got == written
            assert subscription.live


def test_what_was_read_for_one_who_left_does_not_reach_the_one_who_came_then() -> None:
    go_on = [("resume", 0)] * 2
    live = [("open", 1), ("catch_up", 0), *go_on, ("write", 1), ("follow_live", 0), *go_on]
    schedule = Schedule([*live, ("close", 0), ("open", 1), ("catch_up", 0), *go_on * 4])
    schedule.play()
    left, came = schedule.subscriptions
    assert (schedule.heard.values[left], schedule.heard.values[came]) == ([], [b"0"])


def test_a_log_that_does_not_answer_ends_the_subscription_with_the_reason() -> None:
    schedule = Schedule([])
    heard, closed = schedule.heard, schedule.heard.tail.open(schedule.replies[1])
    failing = heard.tail.open(schedule.replies[0])

    def fail(call: str) -> None:
        if call == "offset_at":
            heard.tail.close(closed)
            raise Unavailable("gone")

    schedule.log.pause = fail
    heard.tail.catch_up(0.0)
    heard.tail.catch_up(0.0)
    assert list(heard.failures) == [failing]
    assert failing.closed and heard.values[failing] == []
