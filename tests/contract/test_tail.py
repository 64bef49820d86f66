"""What `topics/tail.py` promises, on the twin and on a real Kafka: every record of a reply, once, in order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.contract.clusters import PATIENCE_S, Cluster, KafkaCluster, MemoryCluster
from tests.contract.heard import PARTITIONS, Heard, minted
from topics.catalog import REPLIES
from topics.errors import Missed, TopicsError
from topics.log import Place


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
    heard.close()


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


@pytest.mark.parametrize("more", [b"", b"4"])
def test_who_misses_records_that_were_deleted_is_told_and_can_open_what_is_left(
    heard: Heard, cluster: Cluster, more: bytes
) -> None:
    place, reply = Place(REPLIES, heard.away), minted(heard.away)
    heard.write(reply, b"1")
    missing = heard.tail.open(reply)
    while missing not in heard.live:  # by its past alone: what comes live is not read, as if this process stood still
        heard.tail.catch_up(0.1)
    heard.write(reply, b"2", b"3")
    cluster.delete_before(place, cluster.log.reader().end(place))
    if more:
        heard.write(reply, more)
    heard.run(lambda: missing in heard.failures)
    assert isinstance(heard.failures[missing], Missed) and heard.values[missing] == [b"1"]
    again = heard.tail.open(reply)
    heard.run(lambda: again in heard.live)
    assert heard.values[again] == ([more] if more else [])


def test_a_partition_that_does_not_exist_ends_the_subscription_and_no_other(heard: Heard) -> None:
    lost, found = heard.tail.open(minted(PARTITIONS + 9)), heard.tail.open(minted(heard.away))
    heard.run(lambda: found in heard.live)
    assert isinstance(heard.failures[lost], TopicsError)
    assert lost.closed and found not in heard.failures
