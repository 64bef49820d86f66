"""Settings of what a process lets others see of it: logs, metrics, traces."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.settings import SettingError, setting

LOGS = ("text", "json")
TRACES = ("", "otlp", "console")


@dataclass(frozen=True)
class TelemetryConfig:
    log: str = setting("LANEWAY_LOG", default="text", doc="how a process logs: text for people, json for machines")
    metrics_port: int = setting(
        "LANEWAY_METRICS_PORT", default=0, doc="a stage's or replica's port of /metrics, /health and /ready; 0: none"
    )
    metrics_host: str = setting("LANEWAY_METRICS_HOST", default="127.0.0.1", doc="the address of that port")
    trace: str = setting(
        "LANEWAY_TRACE",
        default="",
        doc="where spans go: otlp (OTEL_EXPORTER_OTLP_ENDPOINT), console, or nowhere",
    )

    def __post_init__(self) -> None:
        if self.log not in LOGS:
            raise SettingError(f"LANEWAY_LOG={self.log!r}: expected {' or '.join(LOGS)}")
        if not 0 <= self.metrics_port <= 65535:
            raise SettingError(f"LANEWAY_METRICS_PORT={self.metrics_port}: expected a port, or 0 for none")
        if self.trace not in TRACES:
            raise SettingError(f"LANEWAY_TRACE={self.trace!r}: expected otlp, console or nothing")
