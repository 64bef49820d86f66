"""The contract of `topics/log.py`, kept by the in-memory twin and by a real Kafka alike."""

from __future__ import annotations

import threading

import pytest

from tests.contract.clusters import COMPACTED, PATIENCE_S, Cluster, Member, drive, read, read_to_end, write
from topics.errors import Fenced, TopicMismatch
from topics.log import Append, Place, Position, Record


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_a_partition_keeps_the_order_of_its_records(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=2)
    even, odd = Place(topic, 0), Place(topic, 1)
    producer, reader = cluster.log.producer(), cluster.log.reader()
    for n in range(200):
        producer.send(Append((even, odd)[n % 2], b"key", b"%d" % n))
    producer.flush(PATIENCE_S)
    for place in (even, odd):
        reader.add(place, 0)
    records = read(reader, 200)
    assert values([r for r in records if r.place == even]) == [b"%d" % n for n in range(0, 200, 2)]
    assert [r.offset for r in records if r.place == odd] == list(range(100))
    reader.close()


def test_keys_and_values_may_be_missing_or_empty(cluster: Cluster) -> None:
    place = Place(cluster.topic(), 0)
    producer, reader = cluster.log.producer(), cluster.log.reader()
    written = [(b"k", None), (b"k", b""), (None, b"v"), (b"", b"v")]
    for key, value in written:
        producer.send(Append(place, key, value))
    producer.flush(PATIENCE_S)
    reader.add(place, 0)
    assert [(record.key, record.value) for record in read(reader, 4)] == written
    reader.close()


def test_deliveries_are_reported_within_poll_and_flush_only(cluster: Cluster) -> None:
    place, reports = Place(cluster.topic(), 0), []
    producer = cluster.log.producer()
    producer.send(Append(place, None, b"v"), lambda failure: reports.append((failure, threading.get_ident())))
    write(cluster.log, place, b"later")
    assert reports == []
    producer.flush(PATIENCE_S)
    assert reports == [(None, threading.get_ident())]


def test_poll_returns_as_soon_as_a_record_is_there(cluster: Cluster) -> None:
    place, records = Place(cluster.topic(), 0), []
    reader = cluster.log.reader()
    reader.add(place, 0)
    waiting = threading.Thread(target=lambda: records.extend(reader.poll(100, 10 * PATIENCE_S)), daemon=True)
    waiting.start()
    write(cluster.log, place, b"v")
    waiting.join(PATIENCE_S)
    assert values(records) == [b"v"]
    reader.close()


def test_poll_gives_no_more_than_its_limit_and_goes_on_from_there(cluster: Cluster) -> None:
    place, reader = Place(cluster.topic(), 0), cluster.log.reader()
    write(cluster.log, place, *(b"%d" % n for n in range(10)))
    reader.add(place, 4)
    first = read(reader, 3)
    assert values(first) == [b"4", b"5", b"6"]
    assert reader.position(place) == 7
    assert values(read(reader, 3)) == [b"7", b"8", b"9"]
    reader.close()


def test_a_removed_place_is_read_no_more_and_can_come_back(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=2)
    kept, removed = Place(topic, 0), Place(topic, 1)
    reader = cluster.log.reader()
    for place in (kept, removed):
        write(cluster.log, place, b"a")
        reader.add(place, 0)
    read(reader, 2)
    reader.remove(removed)
    for place in (removed, kept):
        write(cluster.log, place, b"b")
    assert [record.place for record in read(reader, 1)] == [kept]
    reader.add(removed, 0)
    assert values(read(reader, 2)) == [b"a", b"b"]
    reader.close()


def test_an_expired_offset_means_the_oldest_left(cluster: Cluster) -> None:
    place, reader = Place(cluster.topic(), 0), cluster.log.reader()
    write(cluster.log, place, b"0", b"1", b"2", b"3")
    cluster.delete_before(place, 2)
    reader.add(place, 0)
    assert [(r.offset, r.value) for r in read(reader, 2)] == [(2, b"2"), (3, b"3")]
    assert (reader.begin(place), reader.end(place)) == (2, 4)
    reader.close()


def test_the_position_reaches_the_end_of_an_expired_partition(cluster: Cluster) -> None:
    place, reader = Place(cluster.topic(), 0), cluster.log.reader()
    write(cluster.log, place, b"0", b"1")
    cluster.delete_before(place, 2)
    reader.add(place, 0)
    assert read_to_end(reader, place) == []
    assert reader.position(place) == 2
    reader.close()


def test_the_position_reaches_the_end_of_a_compacted_partition(cluster: Cluster) -> None:
    place, reader = Place(cluster.topic(**COMPACTED), 0), cluster.log.reader()
    write(cluster.log, place, b"old", b"new", key=b"a")
    write(cluster.log, place, b"kept", key=b"b")
    write(cluster.log, place, b"old", b"newest", key=b"a")
    cluster.compact(place)
    reader.add(place, 0)
    records = [(r.offset, r.value) for r in read_to_end(reader, place) if r.key != b"filler"]
    assert records == [(2, b"kept"), (4, b"newest")]
    reader.close()


def test_offset_at_finds_the_first_record_that_is_not_older(cluster: Cluster) -> None:
    place, reader = Place(cluster.topic(), 0), cluster.log.reader()
    assert reader.offset_at(place, 0) is None
    for n in range(5):
        write(cluster.log, place, b"%d" % n)
    reader.add(place, 0)
    times = [record.timestamp_ms for record in read(reader, 5)]
    assert [reader.offset_at(place, time) for time in times] == [times.index(time) for time in times]
    assert reader.offset_at(place, times[0] - 60_000) == 0
    assert reader.offset_at(place, times[-1] + 1) is None
    reader.close()


def test_offset_at_a_time_that_has_expired_is_the_oldest_left(cluster: Cluster) -> None:
    place, reader = Place(cluster.topic(), 0), cluster.log.reader()
    write(cluster.log, place, b"0", b"1", b"2")
    cluster.delete_before(place, 1)
    assert reader.offset_at(place, 1) == 1
    assert reader.begin(place) == 1
    reader.close()


def test_partitions_counts_them_and_refuses_a_topic_that_is_not_there(cluster: Cluster) -> None:
    assert cluster.log.partitions(cluster.topic(partitions=3)) == 3
    with pytest.raises(TopicMismatch, match="nowhere"):
        cluster.log.partitions("nowhere")


def test_a_transaction_lands_with_its_positions(cluster: Cluster) -> None:
    source, target = cluster.topic(), Place(cluster.topic(), 0)
    member, transactions = Member(cluster.log, source, source, "a"), cluster.log.transactions(source)
    drive([member], lambda: bool(member.held))
    position = {Place(source, 0): Position(7, "L=3")}
    transactions.commit([Append(target, b"k", b"1"), Append(target, b"k", b"2")], position, member.consumer, PATIENCE_S)
    reader = cluster.log.reader(committed_only=True)
    reader.add(target, 0)
    assert values(read_to_end(reader, target)) == [b"1", b"2"]
    assert member.consumer.committed([Place(source, 0)]) == position
    for client in (reader, transactions, member.consumer):
        client.close()


def test_a_newer_holder_of_a_name_fences_the_earlier(cluster: Cluster) -> None:
    source, target = cluster.topic(), Place(cluster.topic(), 0)
    member, earlier = Member(cluster.log, source, source, "a"), cluster.log.transactions(source)
    drive([member], lambda: bool(member.held))
    newer = cluster.log.transactions(source)
    with pytest.raises(Fenced):
        earlier.commit([Append(target, b"k", b"e")], {Place(source, 0): Position(1)}, member.consumer, PATIENCE_S)
    newer.commit([Append(target, b"k", b"n")], {Place(source, 0): Position(2)}, member.consumer, PATIENCE_S)
    reader = cluster.log.reader(committed_only=True)
    reader.add(target, 0)
    assert values(read_to_end(reader, target)) == [b"n"]
    assert member.consumer.committed([Place(source, 0)]) == {Place(source, 0): Position(2)}
    for client in (reader, newer, member.consumer):
        client.close()


def test_a_member_that_was_replaced_commits_nothing(cluster: Cluster) -> None:
    source, target = cluster.topic(), Place(cluster.topic(), 0)
    replaced, transactions = Member(cluster.log, source, source, "a"), cluster.log.transactions(source)
    drive([replaced], lambda: bool(replaced.held))
    member = Member(cluster.log, source, source, "a")
    drive([member], lambda: bool(member.held))
    positions = {Place(source, 0): Position(1)}
    with pytest.raises(Fenced):
        transactions.commit([Append(target, b"k", b"v")], positions, replaced.consumer, PATIENCE_S)
    with pytest.raises(Fenced):
        replaced.consumer.commit(positions)
    assert member.consumer.committed(positions) == {}
    member.consumer.close()


def test_an_aborted_record_is_seen_by_nobody_who_asks_for_committed_ones(cluster: Cluster) -> None:
    source, target = cluster.topic(), Place(cluster.topic(), 0)
    replaced, transactions = Member(cluster.log, source, source, "a"), cluster.log.transactions(source)
    drive([replaced], lambda: bool(replaced.held))
    member, reader = Member(cluster.log, source, source, "a"), cluster.log.reader(committed_only=True)
    drive([member], lambda: bool(member.held))
    with pytest.raises(Fenced):
        appends = [Append(target, b"k", b"aborted")]
        transactions.commit(appends, {Place(source, 0): Position(1)}, replaced.consumer, PATIENCE_S)
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
    one.consumer.commit({place: Position(2)})
    drive([other], lambda: len(other.records) == 2)
    assert values(other.records) == [b"0", b"1"]
    assert other.consumer.committed([place]) == {}
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
