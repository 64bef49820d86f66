"""Logs in one form, metrics as data, the port of a process, and a probe of the brokers."""

from __future__ import annotations

import http.client
import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest
from prometheus_client import Counter, Gauge, Histogram, generate_latest

from schemas.settings import SettingError, load
from topics.catalog import REPLICAS
from topics.errors import Unavailable
from topics.log import HOLD_MS, Place
from topics.memory import MemoryLog, MemoryReader
from topics.telemetry.config import TelemetryConfig
from topics.telemetry.listener import Listener, answer
from topics.telemetry.logs import about, start_logging
from topics.telemetry.metrics import Few, Metric, new_registry
from topics.telemetry.probe import SILENT_S, KafkaProbe

logger = logging.getLogger("tests.telemetry")
KEY = "lw-0123456789abcdef0123456789abcdef"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where logs go, and as they were afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_json_line_says_who_what_and_about_what(stream: io.StringIO) -> None:
    start_logging("edge-8701", "json", stream)
    logger.warning("%d is bad", 7, extra=about(reply="r1", attempt=2, error=ValueError("no")))
    [line] = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (line["level"], line["process"], line["message"]) == ("warning", "edge-8701", "7 is bad")
    assert (line["reply"], line["attempt"], line["error"]) == ("r1", 2, "no")
    assert line["time"].endswith("+00:00") and "conversation" not in line


def test_an_exception_is_one_json_line_with_its_traceback(stream: io.StringIO) -> None:
    start_logging("stages", "json", stream)
    try:
        raise KeyError("missing")
    except KeyError:
        logger.exception("stopping")
    [line] = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert line["error"] == "KeyError('missing')"
    assert "test_telemetry.py" in line["traceback"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_key_is_in_no_line_wherever_it_stood(stream: io.StringIO, form: str) -> None:
    start_logging("edge", form, stream)
    logger.info("Authorization: Bearer secret-word and %s", KEY, extra=about(conversation=KEY, error=KEY))
    text = stream.getvalue()
    assert KEY not in text and "secret-word" not in text
    assert "***" in text and "Authorization" in text


def test_a_line_for_people_ends_with_what_it_is_about(stream: io.StringIO) -> None:
    start_logging("edge", "text", stream)
    logger.error("cannot be read", extra=about(reply="r1", error="gone"))
    assert stream.getvalue().endswith("ERROR cannot be read reply=r1 error=gone\n")


@pytest.mark.parametrize(
    ("key", "value"), [("LANEWAY_LOG", "xml"), ("LANEWAY_METRICS_PORT", "70000"), ("LANEWAY_TRACE", "yes")]
)
def test_a_bad_setting_is_named_with_its_value(key: str, value: str) -> None:
    with pytest.raises(SettingError, match=f"{key}=.*{value}.*: expected"):
        load(TelemetryConfig, {key: value})


def test_a_metric_is_queried_by_the_names_that_are_shown() -> None:
    registry = new_registry()
    metrics = [Metric(kind, f"laneway_{kind.__name__}_total"[:20], "d") for kind in (Counter, Gauge, Histogram)]
    for metric in metrics:
        metric.on(registry)
    shown = {line.split("{")[0].split()[0] for line in generate_latest(registry).decode().splitlines()}
    assert {name for metric in metrics[1:] for name in metric.series} <= shown
    assert "process_resident_memory_bytes" in shown


def test_a_label_that_anybody_can_write_has_few_values() -> None:
    few = Few(2)
    assert [few(word) for word in ("stop", "length: 5 of 3", "third", "stop")] == ["stop", "length", "other", "stop"]


def test_ready_says_what_is_missing_and_unknown_paths_what_there_is() -> None:
    lacking: list[str] = []
    registry = new_registry()
    assert answer("/ready", registry, lambda: lacking)[0] == 200
    lacking.append("intake: not restored")
    status, _, body = answer("/ready", registry, lambda: lacking)
    assert (status, json.loads(body)) == (503, {"ready": False, "missing": lacking})
    assert answer("/health", registry, lambda: lacking)[0] == 200
    assert answer("/", registry, lambda: lacking)[0] == 404


def test_a_listener_serves_metrics_until_it_is_closed() -> None:
    listener = Listener(("127.0.0.1", 0), new_registry(), lambda: ["kafka"])
    connection = http.client.HTTPConnection("127.0.0.1", listener.port, timeout=120)
    connection.request("GET", "/metrics?x=1")
    assert b"laneway_ready 0.0" in connection.getresponse().read()
    with pytest.raises(SettingError, match=f"LANEWAY_METRICS_PORT={listener.port}: expected a free port"):
        Listener(("127.0.0.1", listener.port), new_registry(), list)
    connection.close()
    listener.close()


class Deaf(MemoryReader):
    """Its brokers do not answer."""

    deaf = threading.Event()

    def end(self, place: Place) -> int:
        if self.deaf.is_set():
            raise Unavailable("no brokers")
        return super().end(place)


class DeafLog(MemoryLog):
    def reader(self, *, committed_only: bool = False, hold_ms: int = HOLD_MS) -> MemoryReader:
        return Deaf(self, committed_only)


def test_a_broker_that_does_not_answer_is_missing_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = KafkaProbe(DeafLog({REPLICAS: 1}, lambda: 0), new_registry())
    Deaf.deaf.set()
    probe.ask()
    assert probe.missing() == []
    monkeypatch.setattr(probe, "_answered_at", probe._answered_at - SILENT_S)
    [reason] = probe.missing()
    assert reason.startswith("kafka: no answer for") and "no brokers" in reason
    Deaf.deaf.clear()
    probe.ask()
    assert probe.missing() == []
