from __future__ import annotations

from pathlib import Path

import pytest

from infra.local.kafka import PROGRAM, Broker, java_options


def test_the_broker_listens_on_this_machine_only() -> None:
    settings = Broker(Path("/data"), (), 9092, 9093).settings()
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"


def test_one_node_is_enough_for_every_internal_topic() -> None:
    settings = Broker(Path("/data"), (), 9092, 9093).settings()
    copies = {key: value for key, value in settings.items() if key.endswith((".replication.factor", ".min.isr"))}
    assert len(copies) >= 5
    assert set(copies.values()) == {"1"}


@pytest.mark.parametrize(("heap", "quick"), [("384m", True), ("511M", True), ("512m", False), ("1g", False)])
def test_a_small_heap_takes_the_quick_compiler(heap: str, quick: bool) -> None:
    assert ("-XX:TieredStopAtLevel=1" in java_options(heap)) is quick


def test_cached_jars_are_used_without_a_download(tmp_path: Path) -> None:
    (tmp_path / "kafka.jar").touch()
    (tmp_path / "kafka-4.4.0.json").write_text('["kafka.jar"]')
    said: list[str] = []
    assert PROGRAM.jars(tmp_path, said.append) == (tmp_path / "kafka.jar",)
    assert not said
