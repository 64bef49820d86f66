"""librdkafka's errors as ours, and requests that are asked again while a cluster is only finding its feet."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from topics.errors import Fenced, TopicMismatch, TopicsError, Unavailable

T = TypeVar("T")

REQUEST_TIMEOUT_S = 30.0

_FENCED = {
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._STATE,
    KafkaError._ASSIGNMENT_LOST,
}
_PASSING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._WAIT_COORD,
    KafkaError._TRANSPORT,
}
MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


class Sparsely(logging.Filter):
    """librdkafka says the same of every client and connection, many times a second: one line a minute of each kind."""

    def __init__(self, every_s: float = 60.0) -> None:
        super().__init__()
        self._every_s = every_s
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.getMessage().split(" ", 1)[0]
        if record.created - self._said.get(kind, 0.0) < self._every_s:
            return False
        self._said[kind] = record.created
        return True


LIBRDKAFKA = logging.getLogger("librdkafka")
LIBRDKAFKA.addFilter(Sparsely())


def translated(error: KafkaError, doing: str) -> TopicsError:
    """A librdkafka error as one of ours, saying what was being done."""
    text = f"{doing}: {error.str()} ({error.name()})"
    if error.code() in _FENCED:
        return Fenced(text)
    return TopicMismatch(text) if error.code() in MISSING else Unavailable(text)


@contextlib.contextmanager
def errors(doing: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as raised:
        raise translated(raised.args[0], doing) from raised


def asked(doing: str, ask: Callable[[], T]) -> T:
    """What a request answers; asked again while leaders or coordinators are only being found."""
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        try:
            return ask()
        except KafkaException as raised:
            if raised.args[0].code() not in _PASSING or time.monotonic() > deadline:
                raise translated(raised.args[0], doing) from raised
        time.sleep(0.1)
