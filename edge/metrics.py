"""What Prometheus reads of an edge, in a registry of its own, so that two edges may share a process in tests."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter, Gauge, Histogram

from edge.pace import Pace
from topics.outputs import Output
from topics.telemetry.metrics import READY, Few, Metric, new_registry

ACCEPT_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
FIRST_TOKEN_BUCKETS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 180.0, 600.0)
BETWEEN_TOKENS_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0)

REQUESTS = Metric(Counter, "laneway_edge_requests_total", "Requests by method and status", ("method", "status"))
REFUSED = Metric(Counter, "laneway_edge_refused_total", "Requests refused, by the error's code", ("code",))
STREAMS = Metric(Gauge, "laneway_edge_streams", "SSE streams that are open")
SLOW = Metric(Counter, "laneway_edge_slow_readers_total", "Streams cut off at the send timeout")
SKIPPED = Metric(Counter, "laneway_edge_records_skipped_total", "Records of replies that could not be decoded")
WRITTEN = Metric(Counter, "laneway_edge_records_written_total", "Records written, by their type", ("record",))
ACCEPT = Metric(
    Histogram, "laneway_edge_accept_seconds", "From a posted message to intake's answer", (), ACCEPT_BUCKETS
)
FIRST_TOKEN = Metric(
    Histogram,
    "laneway_edge_first_token_seconds",
    "From a posted message to its first token here, queue and prefill in it",
    (),
    FIRST_TOKEN_BUCKETS,
)
BETWEEN_TOKENS = Metric(
    Histogram,
    "laneway_edge_between_tokens_seconds",
    "Between two records of tokens here, by token",
    (),
    BETWEEN_TOKENS_BUCKETS,
)
WRITES = Metric(Gauge, "laneway_edge_writes", "1 while the log acknowledges what the edge writes, else 0")
METRICS = (
    *(REQUESTS, REFUSED, STREAMS, SLOW, SKIPPED, WRITTEN),
    *(ACCEPT, FIRST_TOKEN, BETWEEN_TOKENS, WRITES),
)


class Metrics:
    def __init__(self) -> None:
        registry = self.registry = new_registry()
        self._requests, self.streams, self.slow = REQUESTS.on(registry), STREAMS.on(registry), SLOW.on(registry)
        self.skipped, self.accept_seconds = SKIPPED.on(registry), ACCEPT.on(registry)
        self._refused, self._written = REFUSED.on(registry), WRITTEN.on(registry)
        self._first_token, self._between_tokens = FIRST_TOKEN.on(registry), BETWEEN_TOKENS.on(registry)
        self._codes = Few(64)

    def follow(self, missing: Callable[[], list[str]], writes: Callable[[], bool]) -> None:
        """The running edge tells whether it is ready, and whether the log takes what it writes."""
        READY.on(self.registry).set_function(lambda: not missing())
        WRITES.on(self.registry).set_function(writes)

    def answered(self, method: str, status: int) -> None:
        self._requests.labels(method, status).inc()

    def refused(self, code: str) -> None:
        self._refused.labels(self._codes(code)).inc()

    def wrote(self, output: Output) -> None:
        self._written.labels(type(output.event).__name__).inc()

    def pace(self) -> Pace:
        """Measures one reply, from now on."""
        return Pace(self._first_token.observe, self._between_tokens.observe)
