"""A state that only a real cluster has: a transaction that is neither committed nor aborted yet."""

from __future__ import annotations

from uuid import uuid4

from confluent_kafka import Producer

from infra.local.kafka import RunningBroker
from tests.contract.clusters import PATIENCE_S, KafkaCluster, Member, drive, read
from topics.log import Place


def test_a_record_of_an_open_transaction_is_seen_only_by_who_reads_all(broker: RunningBroker) -> None:
    cluster = KafkaCluster(broker.bootstrap)
    place = Place(cluster.topic(), 0)
    writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": uuid4().hex})
    writer.init_transactions(PATIENCE_S)
    writer.begin_transaction()
    writer.produce(place.topic, b"open", b"k", place.partition)
    writer.flush(PATIENCE_S)
    follower, careful, hasty = (
        Member(cluster.log, place.topic, place.topic, "a"),
        cluster.log.reader(committed_only=True),
        cluster.log.reader(),
    )
    careful.add(place, 0)
    hasty.add(place, 0)
    drive([follower], lambda: bool(follower.held))
    assert [record.value for record in read(hasty, 1)] == [b"open"]
    assert (careful.poll(1, 0.5), follower.records) == ([], [])
    writer.commit_transaction(PATIENCE_S)
    drive([follower], lambda: bool(follower.records))
    assert [record.value for record in read(careful, 1)] == [b"open"]
    for client in (follower.consumer, careful, hasty):
        client.close()
