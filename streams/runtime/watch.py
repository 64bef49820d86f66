"""Eyes on a runner: its metrics and, if they are asked for, its spans. What is seen changes nothing that is done."""

from __future__ import annotations

from dataclasses import dataclass

from streams.runtime.metrics import StageMeters, StageMetrics
from streams.stage import Message
from topics.log import Record
from topics.telemetry.trace import Spans


@dataclass(frozen=True)
class Watch:
    metrics: StageMetrics
    spans: Spans | None = None

    def read(self, record: Record, message: Message | None) -> None:
        """A record has been decoded, before it is decided."""
        if self.spans is not None and message is not None:
            self.spans.read(record, message.event)

    def missing(self) -> list[str]:
        """What keeps the stage from being ready; one without partitions stands by, and is ready for that."""
        if self.metrics.partitions is None:
            return [f"{self.metrics.stage}: no partitions assigned yet, or not restored"]
        if self.metrics.why_held:
            return [f"{self.metrics.stage}: holds what it has read: {self.metrics.why_held}"]
        return []


def apart() -> Watch:
    """A watch that nobody reads."""
    return Watch(StageMetrics("", StageMeters()))
