"""Metrics as data: each is declared once, by name, meaning and labels; processes, README and dashboards read that.

Names follow Prometheus: `laneway_`, base units, `_total` for what only grows. A label has few values, known ones; where
it follows from a record it goes through `Few`, since anyone may write to the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

M = TypeVar("M", Counter, Gauge, Histogram)


@dataclass(frozen=True)
class Metric(Generic[M]):
    """`name` is the one that Prometheus shows; `buckets` are a histogram's, in its unit."""

    kind: type[M]
    name: str
    doc: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    def on(self, registry: CollectorRegistry) -> M:
        """The metric itself, to be made once a registry."""
        options: dict[str, Any] = {"buckets": self.buckets} if self.buckets else {}
        return self.kind(self.name, self.doc, self.labels, registry=registry, **options)

    @property
    def series(self) -> tuple[str, ...]:
        """The names under which it is queried."""
        if self.kind is Histogram:
            return tuple(f"{self.name}_{part}" for part in ("bucket", "count", "sum"))
        return (self.name,)


READY = Metric(Gauge, "laneway_ready", "1 when /ready answers 200, else 0")
KAFKA_ANSWER_AGE = Metric(
    Gauge, "laneway_kafka_answer_age_seconds", "Since the brokers last answered this stage or replica"
)
PROCESS = (READY, KAFKA_ANSWER_AGE)


def new_registry() -> CollectorRegistry:
    """A process's own, with its memory, CPU time, open files and start time."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


class Few:
    """The first `most` values of a label as they are; whatever comes after them is `other`."""

    def __init__(self, most: int = 32) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        word = value.partition(":")[0][:40]
        if word not in self._known and len(self._known) < self._most:
            self._known.add(word)
        return word if word in self._known else "other"
