"""The contract of groups and transactions in `topics/log.py`, kept by the in-memory twin and by a real Kafka alike."""

from __future__ import annotations

import threading

import pytest

from tests.contract.clusters import PATIENCE_S, Cluster, Member, drive, read_to_end, values, write
from topics.errors import Fenced
from topics.log import Append, Place, Position


def test_a_transaction_lands_with_its_positions(cluster: Cluster) -> None:
    source, target = cluster.topic(), Place(cluster.topic(), 0)
    member, transactions = Member(cluster.log, source, source, "a"), cluster.log.transactions(source, source, "a")
    drive([member], lambda: bool(member.held))
    position = {Place(source, 0): Position(7, "L=3")}
    transactions.commit(
        [Append(target, b"k", b"1"), Append(target, b"k", b"2")], position, member.consumer.membership(), PATIENCE_S
    )
    reader = cluster.log.reader(committed_only=True)
    reader.add(target, 0)
    assert values(read_to_end(reader, target)) == [b"1", b"2"]
    assert member.consumer.committed([Place(source, 0)]) == position
    for client in (reader, transactions, member.consumer):
        client.close()


def test_a_newer_holder_of_a_name_fences_the_earlier(cluster: Cluster) -> None:
    source, target = cluster.topic(), Place(cluster.topic(), 0)
    member, earlier = Member(cluster.log, source, source, "a"), cluster.log.transactions(source, source, "a")
    drive([member], lambda: bool(member.held))
    newer = cluster.log.transactions(source, source, "a")
    with pytest.raises(Fenced):
        earlier.commit(
            [Append(target, b"k", b"e")], {Place(source, 0): Position(1)}, member.consumer.membership(), PATIENCE_S
        )
    newer.commit(
        [Append(target, b"k", b"n")], {Place(source, 0): Position(2)}, member.consumer.membership(), PATIENCE_S
    )
    reader = cluster.log.reader(committed_only=True)
    reader.add(target, 0)
    assert values(read_to_end(reader, target)) == [b"n"]
    assert member.consumer.committed([Place(source, 0)]) == {Place(source, 0): Position(2)}
    for client in (reader, newer, member.consumer):
        client.close()


def test_a_member_that_was_replaced_commits_nothing(cluster: Cluster) -> None:
    source, target = cluster.topic(), Place(cluster.topic(), 0)
    replaced, transactions = Member(cluster.log, source, source, "a"), cluster.log.transactions(source, source, "a")
    drive([replaced], lambda: bool(replaced.held))
    member = Member(cluster.log, source, source, "a")
    drive([member], lambda: bool(member.held))
    positions = {Place(source, 0): Position(1)}
    with pytest.raises(Fenced):
        transactions.commit([Append(target, b"k", b"v")], positions, replaced.consumer.membership(), PATIENCE_S)
    with pytest.raises(Fenced):
        replaced.consumer.commit(positions)
    assert member.consumer.committed(positions) == {}
    member.consumer.close()


def test_an_aborted_record_is_seen_by_nobody_who_asks_for_committed_ones(cluster: Cluster) -> None:
    source, target = cluster.topic(), Place(cluster.topic(), 0)
    replaced, transactions = Member(cluster.log, source, source, "a"), cluster.log.transactions(source, source, "a")
    drive([replaced], lambda: bool(replaced.held))
    member, reader = Member(cluster.log, source, source, "a"), cluster.log.reader(committed_only=True)
    drive([member], lambda: bool(member.held))
    with pytest.raises(Fenced):
        appends = [Append(target, b"k", b"aborted")]
        transactions.commit(appends, {Place(source, 0): Position(1)}, replaced.consumer.membership(), PATIENCE_S)
    write(cluster.log, target, b"after")
    follower = Member(cluster.log, target.topic, target.topic, "f")
    drive([follower], lambda: bool(follower.records))
    reader.add(target, 0)
    assert values(read_to_end(reader, target)) == values(follower.records) == [b"after"]
    for client in (reader, member.consumer, follower.consumer):
        client.close()


def test_committed_positions_and_their_words_outlive_the_member(cluster: Cluster) -> None:
    place = Place(cluster.topic(), 0)
    write(cluster.log, place, b"0", b"1")
    first = Member(cluster.log, place.topic, place.topic, "a")
    drive([first], lambda: len(first.records) == 2)
    first.consumer.close()
    write(cluster.log, place, b"2")
    second = Member(cluster.log, place.topic, place.topic, "a")
    drive([second], lambda: bool(second.records))
    assert values(second.records) == [b"2"]
    assert second.consumer.committed([place]) == {place: Position(2, "after 1")}
    second.consumer.close()


def test_each_group_has_its_own_positions(cluster: Cluster) -> None:
    topic = cluster.topic()
    place = Place(topic, 0)
    write(cluster.log, place, b"0", b"1")
    one, other = (Member(cluster.log, f"{topic}-{name}", topic, "a") for name in ("one", "other"))
    drive([one], lambda: len(one.records) == 2)
    one.consumer.commit({place: Position(2, "its words")})
    drive([other], lambda: len(other.records) == 2)
    assert values(other.records) == [b"0", b"1"]
    assert other.consumer.committed([place]) == {}
    found = [cluster.log.committed(f"{topic}-{name}", place) for name in ("one", "other", "nobody")]
    assert found == [Position(2, "its words"), None, None]
    for member in (one, other):
        member.consumer.close()


def test_a_member_starts_where_its_rebalance_says(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=2)
    said, unsaid = Place(topic, 0), Place(topic, 1)
    for place in (said, unsaid):
        write(cluster.log, place, b"0", b"1", b"2")
    member = Member(cluster.log, topic, topic, "a", starts={said: 1})
    drive([member], lambda: len(member.records) >= 5)
    assert values([r for r in member.records if r.place == said]) == [b"1", b"2"]
    assert values([r for r in member.records if r.place == unsaid]) == [b"0", b"1", b"2"]
    member.consumer.close()


def test_a_second_member_takes_its_share_and_each_record_is_read_once(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=4)
    places = [Place(topic, partition) for partition in range(4)]
    for place in places:
        write(cluster.log, place, b"before")
    first = Member(cluster.log, topic, topic, "a")
    drive([first], lambda: len(first.records) == 4)
    second = Member(cluster.log, topic, topic, "b")
    drive([first, second], lambda: len(first.held) == len(second.held) == 2)
    for place in places:
        write(cluster.log, place, b"after")
    drive([first, second], lambda: len(first.records) + len(second.records) >= 8)
    assert first.held | second.held == set(places)
    assert {r.place for r in second.records} == second.held
    assert sorted(values(first.records + second.records)) == [b"after"] * 4 + [b"before"] * 4
    for member in (first, second):
        member.consumer.close()


def test_the_others_go_on_where_a_member_that_leaves_has_committed(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=2)
    places = [Place(topic, partition) for partition in range(2)]
    staying, leaving = Member(cluster.log, topic, topic, "a"), Member(cluster.log, topic, topic, "b")
    drive([staying, leaving], lambda: len(staying.held) == len(leaving.held) == 1)
    for place in places:
        write(cluster.log, place, b"before")
    drive([staying, leaving], lambda: len(staying.records) == len(leaving.records) == 1)
    leaving.consumer.close()
    assert (leaving.held, leaving.calls[-1]) == (set(), "revoked")
    for place in places:
        write(cluster.log, place, b"after")
    drive([staying], lambda: len(staying.records) == 3)
    assert values(staying.records) == [b"before", b"after", b"after"]
    staying.consumer.close()


def test_a_restart_under_the_same_name_moves_nobody_elses_places(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=2)
    other, stopped = Member(cluster.log, topic, topic, "a"), Member(cluster.log, topic, topic, "b")
    drive([other, stopped], lambda: len(other.held) == len(stopped.held) == 1)
    held, calls = set(stopped.held), list(other.calls)
    restarted = Member(cluster.log, topic, topic, "b")
    drive([other, restarted], lambda: restarted.held == held)
    assert other.calls == calls
    for member in (other, restarted):
        member.consumer.close()


def test_a_member_cannot_commit_a_place_of_another(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=2)
    one, other = Member(cluster.log, topic, topic, "a"), Member(cluster.log, topic, topic, "b")
    drive([one, other], lambda: len(one.held) == len(other.held) == 1)
    with pytest.raises(Fenced):
        one.consumer.commit({place: Position(1) for place in other.held})
    one.consumer.commit({})
    one.consumer.commit({place: Position(2) for place in one.held})
    assert set(one.consumer.committed([*one.held, *other.held])) == one.held
    for member in (one, other):
        member.consumer.close()


def test_a_member_waiting_in_poll_is_woken_by_a_record(cluster: Cluster) -> None:
    place = Place(cluster.topic(), 0)
    member = Member(cluster.log, place.topic, place.topic, "a")
    drive([member], lambda: bool(member.held))
    waiting = threading.Thread(target=lambda: member.poll(10 * PATIENCE_S), daemon=True)
    waiting.start()
    write(cluster.log, place, b"v")
    waiting.join(PATIENCE_S)
    assert values(member.records) == [b"v"]
    member.consumer.close()


def test_a_member_on_hold_is_given_nothing_and_then_goes_on_where_it_was(cluster: Cluster) -> None:
    place = Place(cluster.topic(), 0)
    write(cluster.log, place, b"0", b"1")
    member = Member(cluster.log, place.topic, place.topic, "a")
    drive([member], lambda: len(member.records) == 2)
    member.consumer.hold(True)
    write(cluster.log, place, b"2", b"3")
    assert [member.consumer.poll(10, 0.1) for _ in range(5)] == [[]] * 5
    assert place in member.held
    member.consumer.hold(False)
    drive([member], lambda: len(member.records) == 4)
    assert values(member.records) == [b"0", b"1", b"2", b"3"]
    member.consumer.close()
