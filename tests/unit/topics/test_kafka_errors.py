"""Which answers of a cluster are asked for again, and which are the caller's to know."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from topics.errors import TopicMismatch
from topics.kafka_errors import asked


def answers(*codes: int) -> Iterator[KafkaException]:
    return (KafkaException(KafkaError(code)) for code in codes)


@pytest.mark.parametrize("code", [KafkaError.FENCED_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION])
def test_a_leader_that_has_just_started_again_is_asked_again(code: int) -> None:
    failing = answers(code)

    def ask() -> str:
        for failure in failing:
            raise failure
        return "answer"

    assert asked("asking", ask) == "answer"


def test_a_topic_that_is_not_there_is_told_at_once() -> None:
    failing = answers(KafkaError.UNKNOWN_TOPIC_OR_PART)

    def ask() -> str:
        raise next(failing)

    with pytest.raises(TopicMismatch, match="asking"):
        asked("asking", ask)
