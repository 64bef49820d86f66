"""What Prometheus reads of an edge, in a registry of its own, so that two edges may share a process in tests."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

ACCEPT_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "laneway_edge_requests", "Requests by method and status", ("method", "status"), registry=self.registry
        )
        self.streams = Gauge("laneway_edge_streams", "SSE streams that are open", registry=self.registry)
        self.slow = Counter("laneway_edge_slow_readers", "Streams cut off at the send timeout", registry=self.registry)
        self.skipped = Counter(
            "laneway_edge_records_skipped", "Records of replies that could not be decoded", registry=self.registry
        )
        self.accept_seconds = Histogram(
            "laneway_edge_accept_seconds",
            "From a posted message to intake's answer",
            buckets=ACCEPT_BUCKETS,
            registry=self.registry,
        )
