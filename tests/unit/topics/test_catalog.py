"""The catalog's promises: names are unique, every event has a home, the log remembers as long as replies may last."""

from __future__ import annotations

import pytest

from schemas.avro_schema import EVENTS
from topics.catalog import (
    LONGEST_DEADLINE_MS,
    REPLIES,
    TIERS,
    Sizes,
    Topic,
    catalog,
    commands_topic,
    generate_topic,
    lane_topic,
)

SIZES = Sizes(pools=("main", "mini"), slots=3, users=5, replies=7)
BY_NAME = {topic.name: topic for topic in catalog(SIZES)}


def retention_ms(topic: Topic) -> float:
    return float("inf") if topic.retention_ms is None else topic.retention_ms


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(catalog(SIZES))


def test_every_event_has_a_topic_and_every_topic_only_events() -> None:
    assert {event for topic in BY_NAME.values() for event in topic.events} == set(EVENTS)


@pytest.mark.parametrize("pool", SIZES.pools)
def test_the_way_of_a_reply_is_remembered_for_twice_the_longest_deadline(pool: str) -> None:
    lanes = [lane_topic(pool, tier) for tier in TIERS]
    for name in (REPLIES, commands_topic(pool), *lanes):
        assert retention_ms(BY_NAME[name]) >= 2 * LONGEST_DEADLINE_MS
    for tier in TIERS:
        assert retention_ms(BY_NAME[generate_topic(pool, tier)]) >= retention_ms(BY_NAME[REPLIES])


def test_nothing_of_a_reply_is_compacted_within_its_retention() -> None:
    config = BY_NAME[REPLIES].config()
    assert int(config["min.compaction.lag.ms"]) >= int(config["retention.ms"])
    assert config["cleanup.policy"] == "compact,delete"


def test_what_changelogs_hold_of_users_is_compacted_in_an_hour() -> None:
    for name in ("intake-state", "supervisor-state"):
        config = BY_NAME[name].config()
        assert (config["cleanup.policy"], int(config["max.compaction.lag.ms"])) == ("compact", 3_600_000)


def test_partitions_follow_the_sizes() -> None:
    assert BY_NAME[REPLIES].partitions == 7
    assert {BY_NAME[name].partitions for name in ("messages", "turns", "usage", "intake-state")} == {5}
    assert {BY_NAME[lane_topic(pool, tier)].partitions for pool in SIZES.pools for tier in TIERS} == {3}


@pytest.mark.parametrize("topic", BY_NAME.values(), ids=lambda topic: topic.name)
def test_a_topic_takes_the_brokers_time_and_says_why_it_is_there(topic: Topic) -> None:
    config = topic.config()
    assert config["message.timestamp.type"] == "LogAppendTime"
    assert ("compact" in topic.cleanup) or topic.retention_ms is not None
    assert topic.why
    assert topic.key
