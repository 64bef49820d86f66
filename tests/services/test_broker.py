"""A real broker from packages: it answers, refuses surprises, and keeps its records over kill -9 and new ports."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from infra.local.kafka import RunningBroker
from tests.stack import small_broker


def write(bootstrap: str, value: bytes) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce("kept", value, partition=0)
    assert producer.flush(30) == 0


def read(bootstrap: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("kept", 0, 0)])
        message = consumer.poll(30)
        return None if message is None else message.value()
    finally:
        consumer.close()


def test_a_broker_answers_and_creates_no_topic_by_itself(broker: RunningBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.list_topics("never-created", timeout=30)
    assert "never-created" not in admin.list_topics(timeout=30).topics


@pytest.mark.parametrize("violent", [False, True])
def test_records_outlive_the_broker_and_its_ports(tmp_path: Path, violent: bool) -> None:
    first = small_broker(tmp_path)
    first.wait_ready()
    write(first.bootstrap, b"hello")
    if violent:
        first.process.kill()
    else:
        first.stop()
    second = small_broker(tmp_path)
    try:
        second.wait_ready()
        assert read(second.bootstrap) == b"hello"
    finally:
        second.stop()
