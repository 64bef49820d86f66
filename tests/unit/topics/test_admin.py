"""The catalog against what a cluster has: what differs, and what of it would lose or mix records."""

from dataclasses import replace

import pytest

from topics.admin import Difference, Found, compare
from topics.catalog import HOUR, Sizes, Topic, catalog

KEYED = Topic("replies", "reply", (), 4, HOUR, "why", cleanup="compact,delete", settings={"min.compaction.lag.ms": "9"})
LOOSE = replace(KEYED, name="dead-letters", keyed=False)
ENDLESS = replace(KEYED, retention_ms=None)


def found(topic: Topic, partitions: int | None = None, **settings: str) -> Found:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Found(partitions or topic.partitions, topic.config() | {"unclean.leader.election.enable": "true"} | given)


@pytest.mark.parametrize("topic", catalog(Sizes()), ids=lambda topic: topic.name)
def test_a_topic_as_the_catalog_says_differs_in_nothing(topic: Topic) -> None:
    assert compare(topic, found(topic)) == []


@pytest.mark.parametrize(
    ("topic", "partitions", "dangerous"),
    [(KEYED, 5, True), (KEYED, 3, True), (LOOSE, 5, False), (LOOSE, 3, True)],
)
def test_another_count_of_partitions(topic: Topic, partitions: int, dangerous: bool) -> None:
    assert compare(topic, found(topic, partitions)) == [
        Difference(topic.name, "partitions", "4", str(partitions), dangerous)
    ]


@pytest.mark.parametrize(
    ("topic", "setting", "value", "dangerous"),
    [
        (KEYED, "retention.ms", str(HOUR - 1), True),
        (KEYED, "retention.ms", str(HOUR + 1), False),
        (KEYED, "retention.ms", "-1", False),
        (ENDLESS, "retention.ms", str(10**12), True),
        (KEYED, "cleanup.policy", "delete", True),
        (KEYED, "message.timestamp.type", "CreateTime", True),
        (KEYED, "min.compaction.lag.ms", "0", True),
        (KEYED, "segment.ms", "1", False),
    ],
)
def test_another_setting(topic: Topic, setting: str, value: str, dangerous: bool) -> None:
    [difference] = compare(topic, found(topic, **{setting.replace(".", "_"): value}))
    assert (difference.what, difference.found, difference.dangerous) == (setting, value, dangerous)
    assert str(difference) == f"replies: {setting} is {value}, the catalog says {topic.config()[setting]}"


def test_the_order_of_cleanup_policies_means_nothing() -> None:
    assert compare(KEYED, found(KEYED, cleanup_policy="delete,compact")) == []


def test_a_setting_that_the_cluster_does_not_tell_differs() -> None:
    silent = Found(KEYED.partitions, {})
    assert {difference.what for difference in compare(KEYED, silent)} == set(KEYED.config())
