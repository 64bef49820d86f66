"""The contract of producers and readers in `topics/log.py`, kept by the in-memory twin and by a real Kafka alike."""

from __future__ import annotations

import threading

import pytest

from tests.contract.clusters import COMPACTED, PATIENCE_S, Cluster, read, read_to_end, values, write
from topics.errors import TopicMismatch
from topics.log import Append, Place


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


def test_a_record_keeps_its_headers_in_order(cluster: Cluster) -> None:
    place = Place(cluster.topic(), 0)
    producer, reader = cluster.log.producer(), cluster.log.reader()
    headers = (("traceparent", b"00-1"), ("empty", b""), ("traceparent", b"00-2"))
    producer.send(Append(place, b"k", b"v", headers))
    producer.send(Append(place, b"k", b"v"))
    producer.flush(PATIENCE_S)
    reader.add(place, 0)
    assert [record.headers for record in read(reader, 2)] == [headers, ()]
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
