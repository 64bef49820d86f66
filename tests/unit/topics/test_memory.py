"""What only the twin offers: members that die, deliveries that fail, and one story whatever the thread."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.clusters import Member, drive, write
from topics.errors import DeliveryFailed, Fenced, TopicMismatch, Unavailable
from topics.log import Append, Place, Position
from topics.memory import MemoryLog
from topics.memory_group import ranges

PLACES = [Place("t", 0), Place("t", 1)]


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog({"t": 2}, clock=lambda: 1)


def test_a_member_that_was_expelled_loses_its_places_and_joins_again(log: MemoryLog) -> None:
    silent, other = Member(log, "g", "t", "a"), Member(log, "g", "t", "b")
    drive([silent, other], lambda: len(silent.held) == len(other.held) == 1)
    lost = set(silent.held)
    log.expel("g", "a")
    drive([other], lambda: other.held == set(PLACES))
    with pytest.raises(Fenced, match="a of group g no longer owns"):
        silent.consumer.commit(dict.fromkeys(lost, Position(1)))
    drive([silent, other], lambda: len(silent.held) == len(other.held) == 1)
    assert silent.calls == ["assigned", "lost", "assigned"]


def test_a_member_that_was_expelled_writes_nothing_that_counts(log: MemoryLog) -> None:
    zombie, transactions = Member(log, "g", "t", "a"), log.transactions("g", "t", "w")
    zombie.poll(0)
    log.expel("g", "a")
    with pytest.raises(Fenced):
        transactions.commit([Append(PLACES[0], b"k", b"v")], {PLACES[1]: Position(1)}, zombie.consumer.membership(), 1)
    reader, anyone = log.reader(committed_only=True), log.reader()
    for each in (reader, anyone):
        each.add(PLACES[0], 0)
    assert (reader.poll(10, 0), reader.position(PLACES[0])) == ([], log.reader().end(PLACES[0]))
    assert [record.value for record in anyone.poll(10, 0)] == [b"v"]


def test_a_member_that_was_replaced_learns_it_in_poll(log: MemoryLog) -> None:
    replaced = Member(log, "g", "t", "a")
    replaced.poll(0)
    newer = Member(log, "g", "t", "a")
    with pytest.raises(Fenced, match="another process is a of group g now"):
        replaced.poll(0)
    assert (replaced.held, replaced.calls[-1]) == (set(), "lost")
    newer.poll(0)
    assert newer.held == set(PLACES)


def test_failed_deliveries_are_reported_and_are_not_in_the_log(log: MemoryLog) -> None:
    reports: list[Exception | None] = []
    producer, reader = log.producer(), log.reader()
    reader.add(PLACES[0], 0)
    log.fail_deliveries("t", 1)
    for value in (b"lost", b"kept"):
        producer.send(Append(PLACES[0], b"k", value), reports.append)
    with pytest.raises(DeliveryFailed, match="records were not acknowledged"):
        producer.flush(1)
    assert [type(report) for report in reports] == [DeliveryFailed, type(None)]
    producer.flush(1)
    assert [record.value for record in reader.poll(10, 0)] == [b"kept"]


def test_a_transaction_with_a_failed_delivery_leaves_no_trace(log: MemoryLog) -> None:
    member, transactions = Member(log, "g", "t", "a"), log.transactions("g", "t", "w")
    member.poll(0)
    appends, positions = [Append(place, b"k", b"v") for place in PLACES], {PLACES[0]: Position(1)}
    log.fail_deliveries("t", 1)
    with pytest.raises(Unavailable, match="did not acknowledge"):
        transactions.commit(appends, positions, member.consumer.membership(), 1)
    assert (log.reader().end(PLACES[0]), member.consumer.committed(PLACES)) == (0, {})
    transactions.commit(appends, positions, member.consumer.membership(), 1)
    assert member.consumer.committed(PLACES) == positions


def test_a_place_that_does_not_exist_is_named(log: MemoryLog) -> None:
    producer, nowhere = log.producer(), Place("t", 9)
    producer.send(Append(nowhere, None, b"v"))
    with pytest.raises(DeliveryFailed, match="partition=9"):
        producer.flush(1)
    with pytest.raises(TopicMismatch, match="partition=9"):
        log.reader().add(nowhere, 0)


def test_places_that_could_not_be_taken_over_are_offered_again(log: MemoryLog) -> None:
    class Refusing(Member):
        def assigned(self, places: list[Place]) -> dict[Place, int]:  # type: ignore[override]
            if not self.calls:
                self.calls.append("refused")
                raise Unavailable("no changelog yet")
            return super().assigned(places)

    member = Refusing(log, "g", "t", "a")
    with pytest.raises(Unavailable):
        member.poll(0)
    write(log, PLACES[1], b"v")
    member.poll(0)
    assert (member.held, len(member.records)) == (set(PLACES), 1)


def test_threads_share_the_log_and_lose_nothing(log: MemoryLog) -> None:
    def produce(name: bytes) -> None:
        producer = log.producer()
        for n in range(200):
            producer.send(Append(PLACES[n % 2], name, b"%d" % n))

    member = Member(log, "g", "t", "a")
    threads = [threading.Thread(target=produce, args=(name,)) for name in (b"x", b"y", b"z")]
    for thread in threads:
        thread.start()
    drive([member], lambda: len(member.records) == 600)
    for thread in threads:
        thread.join()
    assert len({(record.place, record.offset) for record in member.records}) == 600


@given(st.integers(1, 9), st.lists(st.sampled_from("abcdef"), unique=True, min_size=1).map(sorted))
def test_places_are_spread_evenly_and_equal_topics_alike(count: int, members: list[str]) -> None:
    places = [Place(topic, partition) for topic in ("one", "other") for partition in range(count)]
    target = ranges(places, members)
    loads = [list(target.values()).count(member) for member in members]
    assert set(target) == set(places)
    assert max(loads) - min(loads) <= 2
    assert all(target[Place("one", n)] == target[Place("other", n)] for n in range(count))


def test_a_rebalance_takes_all_and_gives_anew(log: MemoryLog) -> None:
    first = Member(log, "g", "t", "a")
    first.poll(0)
    second = Member(log, "g", "t", "b")
    second.poll(0)
    assert second.held == set()
    drive([first, second], lambda: first.held == {PLACES[0]} and second.held == {PLACES[1]})
    assert first.calls == ["assigned", "revoked", "assigned"]
