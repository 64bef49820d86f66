"""Eyes on a replica: its metrics, its port and, if they are asked for, its spans. What is seen changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from engine.metrics import ReplicaMetrics
from engine.replica import Replica
from topics.log import Log, Record
from topics.telemetry.config import TelemetryConfig
from topics.telemetry.listener import Listener
from topics.telemetry.probe import KafkaProbe
from topics.telemetry.trace import Spans, tracer_of


class Eyes:
    def __init__(self, config: TelemetryConfig) -> None:
        self._config = config
        self.metrics = ReplicaMetrics()
        tracer = tracer_of("replica", config.trace)
        self.spans = Spans("replica", tracer) if tracer else None

    def read(self, record: Record, event: object) -> None:
        """The replica has been told something."""
        if self.spans is not None:
            self.spans.read(record, event)

    def stepped(self, replica: Replica) -> None:
        """A pass has ended."""
        self.metrics.stepped(replica.totals, replica.requests, replica.load.running)

    def listen(self, log: Log, replica: Replica, blocks: int, leaving: Callable[[], bool]) -> None:
        """Opens the metrics port, if one is set, for as long as the process lives."""
        self.metrics.follow(replica, blocks)
        if not self._config.metrics_port:
            return
        probe = KafkaProbe(log, self.metrics.registry)
        probe.start()

        def missing() -> list[str]:
            return [*probe.missing(), *(["draining"] if replica.draining or leaving() else [])]

        Listener((self._config.metrics_host, self._config.metrics_port), self.metrics.registry, missing)
