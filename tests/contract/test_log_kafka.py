"""What only a real cluster has: a transaction that is neither committed nor aborted yet, a member that is remembered
for as long as its session lasts."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from infra.local.kafka import RunningBroker
from tests.contract.clusters import PATIENCE_S, KafkaCluster, Member, drive, read, write
from topics.kafka import KafkaLogProducer
from topics.log import Append, Place, Position


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


def members(broker: RunningBroker, group: str) -> set[str]:
    """The instances that the group's coordinator knows."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [asked] = admin.describe_consumer_groups([f"laneway.{group}"], request_timeout=PATIENCE_S).values()
    return {member.group_instance_id.rpartition(".")[2] for member in asked.result(PATIENCE_S).members}


def test_who_leaves_others_behind_is_forgotten_before_its_session_ends(broker: RunningBroker) -> None:
    cluster = KafkaCluster(broker.bootstrap)
    topic = cluster.topic(partitions=2)
    staying, leaving = Member(cluster.log, topic, topic, "a"), Member(cluster.log, topic, topic, "b")
    drive([staying, leaving], lambda: len(staying.held) == len(leaving.held) == 1)
    leaving.consumer.close()
    assert members(broker, topic) == {"a"}
    assert (leaving.held, leaving.calls[-1]) == (set(), "revoked")
    drive([staying], lambda: len(staying.held) == 2)
    staying.consumer.close()


def test_who_is_alone_keeps_its_name_for_its_next_start(broker: RunningBroker) -> None:
    cluster = KafkaCluster(broker.bootstrap)
    place = Place(cluster.topic(), 0)
    alone = Member(cluster.log, place.topic, place.topic, "a")
    drive([alone], lambda: bool(alone.held))
    alone.consumer.close()
    assert (members(broker, place.topic), alone.held) == ({"a"}, set())
    again = Member(cluster.log, place.topic, place.topic, "a")
    drive([again], lambda: again.held == {place})
    again.consumer.close()


def test_a_leave_costs_the_rest_of_the_group_nothing_that_was_committed(broker: RunningBroker) -> None:
    cluster = KafkaCluster(broker.bootstrap)
    topic = cluster.topic(partitions=2)
    places = [Place(topic, partition) for partition in range(2)]
    first, second = Member(cluster.log, topic, topic, "a"), Member(cluster.log, topic, topic, "b")
    drive([first, second], lambda: len(first.held) == len(second.held) == 1)
    for place in places:
        write(cluster.log, place, b"0", b"1")
    drive([first, second], lambda: len(first.records) == len(second.records) == 2)
    second.consumer.close()
    again = Member(cluster.log, topic, topic, "b")
    drive([first, again], lambda: len(first.held) == len(again.held) == 1)
    for place in places:
        write(cluster.log, place, b"2")
    drive([first, again], lambda: len(first.records) + len(again.records) == 4)
    assert sorted(record.value or b"" for record in (*first.records, *again.records)) == [b"0", b"1", b"2", b"2"]
    for member in (first, again):
        member.consumer.close()


def test_what_a_member_commits_in_its_last_transaction_is_where_the_others_go_on(broker: RunningBroker) -> None:
    cluster = KafkaCluster(broker.bootstrap)
    topic = cluster.topic(partitions=2)
    staying, leaving = Member(cluster.log, topic, topic, "a"), Member(cluster.log, topic, topic, "b")
    transactions = cluster.log.transactions(topic, topic, "b")
    drive([staying, leaving], lambda: len(staying.held) == len(leaving.held) == 1)
    [place], membership = leaving.held, leaving.consumer.membership()
    written = [Append(place, b"k", b"last")]
    leaving.revoked = lambda places: transactions.commit(
        written, {place: Position(1) for place in places}, membership, PATIENCE_S
    )
    leaving.consumer.close()
    assert (members(broker, topic), staying.consumer.committed([place])) == ({"a"}, {place: Position(1)})
    write(cluster.log, place, b"next")
    drive([staying], lambda: bool(staying.records))
    assert [record.value for record in staying.records] == [b"next"]
    for client in (transactions, staying.consumer):
        client.close()


def test_a_question_is_not_kept_behind_a_fetch_that_the_broker_holds(broker: RunningBroker) -> None:
    cluster = KafkaCluster(broker.bootstrap)
    place = Place(cluster.topic(), 0)
    reader = cluster.log.reader(hold_ms=50_000)  # longer than a question's patience
    write(cluster.log, place, b"1")
    reader.add(place, 0)
    assert [record.value for record in read(reader, 1)] == [b"1"]
    assert reader.poll(1, 1.0) == []
    assert (reader.begin(place), reader.end(place), reader.offset_at(place, 0)) == (0, 1, 0)
    reader.close()


def test_a_header_that_is_null_is_none_at_all(broker: RunningBroker) -> None:
    cluster = KafkaCluster(broker.bootstrap)
    place = Place(cluster.topic(), 0)
    writer = Producer({"bootstrap.servers": broker.bootstrap})
    writer.produce(place.topic, b"v", b"k", place.partition, headers=[("laneway-written", None), ("own", b"1")])
    writer.flush(PATIENCE_S)
    reader = cluster.log.reader()
    reader.add(place, 0)
    assert [record.headers for record in read(reader, 1)] == [(("own", b"1"),)]
    reader.close()


class Standing:
    """A client whose records time out once it is told so, and which says so again of none."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def produce(self, topic: str, value: bytes, key: bytes, partition: int, on_delivery: Any) -> None:
        self.sent.append(on_delivery)

    def purge(self) -> None:
        self.fails(KafkaError._PURGE_QUEUE)

    def poll(self, timeout_s: float) -> None: ...

    def flush(self, timeout_s: float) -> int:
        return len(self.sent)

    def fails(self, code: int, count: int | None = None) -> None:
        failing, self.sent = self.sent[:count], self.sent[len(self.sent[:count]) :]
        for report in failing:
            report(KafkaError(code), None)


def test_a_producer_whose_record_has_timed_out_fails_all_it_holds_and_goes_on_with_another_client() -> None:
    clients: list[Standing] = []

    def connect() -> Any:
        clients.append(Standing())
        return clients[-1]

    producer, failures = KafkaLogProducer(connect), list[bool]()
    for _ in range(3):
        producer.send(Append(Place("t", 0), b"k", b"v"), lambda failure: failures.append(failure is not None))
    clients[0].fails(KafkaError._MSG_TIMED_OUT, 1)
    assert (failures, len(clients)) == ([True], 1)
    producer.poll()
    assert (failures, len(clients)) == ([True, True, True], 2)
    producer.send(Append(Place("t", 0), b"k", b"v"))
    assert [len(client.sent) for client in clients] == [0, 1]
