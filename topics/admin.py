"""The catalog against a cluster: creates what is missing, tells what differs, refuses what would lose or mix data.

`compare` is pure and decides; `ensure` acts on what it says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from topics.catalog import Topic, catalog
from topics.config import KafkaConfig
from topics.errors import TopicMismatch, Unavailable
from topics.kafka_errors import LIBRDKAFKA

REQUEST_TIMEOUT_S = 30.0
DANGEROUS = ("cleanup.policy", "message.timestamp.type", "min.compaction.lag.ms")


@dataclass(frozen=True, slots=True)
class Found:
    """A topic as the cluster has it."""

    partitions: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as the catalog says. `dangerous`: Laneway would lose or mix records if it went on."""

    topic: str
    what: str
    wanted: str
    found: str
    dangerous: bool

    def __str__(self) -> str:
        return f"{self.topic}: {self.what} is {self.found}, the catalog says {self.wanted}"


@dataclass(frozen=True, slots=True)
class Report:
    """What `ensure` or `inspect` saw: topics that are missing or were created, and what differs in the others."""

    topics: int
    missing: tuple[str, ...]
    created: tuple[str, ...]
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        lines = [f"{self.topics} topics in the catalog, {len(self.created)} created, {len(self.missing)} missing"]
        lines += [f"missing: {name}" for name in self.missing]
        lines += [f"{'DANGEROUS ' if d.dangerous else ''}{d}" for d in self.differences]
        return "\n".join(lines)


def compare(topic: Topic, found: Found) -> list[Difference]:
    """What differs. Fewer partitions, another count under keys, and shorter retention are dangerous."""
    differences: list[Difference] = []
    if topic.partitions != found.partitions:
        dangerous = topic.keyed or found.partitions < topic.partitions
        differences.append(
            Difference(topic.name, "partitions", str(topic.partitions), str(found.partitions), dangerous)
        )
    for key, wanted in topic.config().items():
        value = found.settings.get(key, "")
        if _normal(value) != _normal(wanted):
            shorter = key == "retention.ms" and _endless(value) < _endless(wanted)
            differences.append(Difference(topic.name, key, wanted, value, shorter or key in DANGEROUS))
    return differences


def _normal(value: str) -> tuple[str, ...]:
    return tuple(sorted(value.split(",")))


def _endless(value: str) -> float:
    return float("inf") if value in ("", "-1") else float(value)


def inspect(config: KafkaConfig) -> Report:
    """The catalog against the cluster, nothing changed. Raises Unavailable."""
    client = _client(config)
    topics = catalog(config.sizes)
    found = _describe(client, topics)
    missing = tuple(topic.name for topic in topics if topic.name not in found)
    differences = [d for topic in topics if topic.name in found for d in compare(topic, found[topic.name])]
    return Report(len(topics), missing, (), tuple(differences))


def ensure(config: KafkaConfig) -> Report:
    """Creates what is missing. Raises TopicMismatch for a dangerous difference, Unavailable without a cluster."""
    report = inspect(config)
    dangerous = [str(difference) for difference in report.differences if difference.dangerous]
    if dangerous:
        told = "; ".join(dangerous)
        raise TopicMismatch(f"{told}. Set these topics as the catalog says, or point LANEWAY_KAFKA at another cluster")
    wanted = [topic for topic in catalog(config.sizes) if topic.name in report.missing]
    _create(_client(config), wanted, config.replication)
    return Report(report.topics, (), report.missing, report.differences)


def _client(config: KafkaConfig) -> AdminClient:
    settings: dict[str, Any] = {**config.connection(), "log_level": 3, "logger": LIBRDKAFKA}
    return AdminClient(settings)


def _describe(client: AdminClient, topics: Sequence[Topic]) -> dict[str, Found]:
    try:
        present = client.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        names = [topic.name for topic in topics if topic.name in present]
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        answers = client.describe_configs(resources) if resources else {}
        settings = {resource.name: answer.result(REQUEST_TIMEOUT_S) for resource, answer in answers.items()}
    except KafkaException as raised:
        raise Unavailable(f"asking the cluster for its topics: {raised.args[0].str()}") from raised
    return {
        name: Found(len(present[name].partitions), {key: entry.value or "" for key, entry in settings[name].items()})
        for name in names
    }


def _create(client: AdminClient, topics: Sequence[Topic], replication: int) -> None:
    new = [NewTopic(topic.name, topic.partitions, replication, config=topic.config()) for topic in topics]
    for name, answer in (client.create_topics(new) if new else {}).items():
        try:
            answer.result(REQUEST_TIMEOUT_S)
        except KafkaException as raised:
            if raised.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise Unavailable(f"creating topic {name}: {raised.args[0].str()}") from raised
