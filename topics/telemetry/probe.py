"""Whether the brokers answer this process: a thread of its own asks, since a reader just waits when they do not."""

from __future__ import annotations

import threading
import time

from prometheus_client import CollectorRegistry

from topics.catalog import REPLICAS
from topics.errors import TopicsError
from topics.log import Log, Place
from topics.telemetry.metrics import KAFKA_ANSWER_AGE

EVERY_S = 1.0
SILENT_S = 5.0


class KafkaProbe(threading.Thread):
    """Asks from `start` on, until the process ends."""

    def __init__(self, log: Log, registry: CollectorRegistry) -> None:
        super().__init__(name="kafka-probe", daemon=True)
        self._reader = log.reader()
        self._stopping = threading.Event()
        self._answered_at = time.monotonic()
        self._error: TopicsError | None = None
        KAFKA_ANSWER_AGE.on(registry).set_function(self.silent_s)

    def silent_s(self) -> float:
        return time.monotonic() - self._answered_at

    def missing(self) -> list[str]:
        silent = self.silent_s()
        if silent < SILENT_S:
            return []
        return [f"kafka: no answer for {silent:.0f} s{f' ({self._error})' if self._error else ''}"]

    def ask(self) -> None:
        try:
            self._reader.end(Place(REPLICAS, 0))
        except TopicsError as error:
            self._error = error
        else:
            self._answered_at, self._error = time.monotonic(), None

    def run(self) -> None:
        while not self._stopping.wait(EVERY_S):
            self.ask()

    def stop(self) -> None:
        """The next question is not asked; one that waits for a broker is left to wait."""
        self._stopping.set()
