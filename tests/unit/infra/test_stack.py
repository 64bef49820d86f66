from __future__ import annotations

from pathlib import Path

import pytest

from infra.config import UpConfig
from infra.local.processes import Child
from infra.local.stack import Places, children, says_ready, split
from infra.local.state import DataFolder
from infra.local.up import announcement
from schemas.settings import SettingError, load

PLACES = Places("127.0.0.1:9092", (8701, 8702), Path("/models/m"), env={"EXTRA": "1"})


def made(config: UpConfig) -> dict[str, Child]:
    return {child.name: child for child in children(config, DataFolder(Path("/data")), PLACES)}


def test_one_process_runs_the_stages_and_each_edge_has_its_own_homes() -> None:
    found = made(UpConfig())
    assert list(found) == ["stages", "replica-0", "edge-0", "edge-1"]
    assert found["stages"].argv[-6:] == ("stages", "intake", "router", "settlement", "history", "supervisor")
    assert [found[f"edge-{n}"].env["LANEWAY_EDGE_PARTITIONS"] for n in (0, 1)] == ["0-7", "8-15"]


def test_with_mini_a_second_replica_serves_its_pool_with_the_same_model() -> None:
    found = made(UpConfig(mini=True))
    assert list(found) == ["stages", "replica-0", "replica-mini", "edge-0", "edge-1"]
    assert [found[f"replica-{n}"].env["LANEWAY_POOL"] for n in ("0", "mini")] == ["main", "mini"]
    assert found["replica-mini"].env["LANEWAY_MODEL"] == found["replica-0"].env["LANEWAY_MODEL"]


def test_every_process_is_told_where_the_log_and_the_keys_are() -> None:
    for child in made(UpConfig(replicas=2)).values():
        assert child.env["LANEWAY_KAFKA"] == "127.0.0.1:9092"
        assert child.env["LANEWAY_KEYS"] == "/data/keys.json"
        assert child.env["LANEWAY_MODEL"] == "/models/m"
        assert child.env["EXTRA"] == "1"


def test_pages_may_go_on_at_each_edge_under_the_name_they_came_by() -> None:
    env = made(UpConfig(origins=("http://localhost:3000",)))["edge-1"].env
    edges = [f"http://{name}:{port}" for name in ("127.0.0.1", "localhost") for port in (8701, 8702)]
    assert env["LANEWAY_EDGES"] == ",".join(edges)
    assert env["LANEWAY_ORIGINS"] == ",".join([*edges, "http://localhost:3000"])


@pytest.mark.parametrize(
    ("partitions", "homes"), [(16, ["0-7", "8-15"]), (3, ["0-0", "1-2"]), (2, ["0-0", "1-1"]), (1, ["0-0", "0-0"])]
)
def test_homes_cover_all_partitions(partitions: int, homes: list[str]) -> None:
    assert split(partitions, 2) == homes


def test_a_ready_file_of_an_earlier_process_does_not_count(tmp_path: Path) -> None:
    ready = says_ready(tmp_path / "replica-0")
    assert not ready(41)
    (tmp_path / "replica-0").write_text("41\n")
    assert ready(41)
    assert not ready(42)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("LANEWAY_REPLICA", "fake"),
        ("LANEWAY_REPLICAS", "0"),
        ("LANEWAY_KAFKA_HEAP", "lots"),
        ("LANEWAY_STORE", "mongo"),
        ("LANEWAY_STORE", "foo://x"),
    ],
)
def test_a_bad_setting_is_named_with_its_value(key: str, value: str) -> None:
    with pytest.raises(SettingError, match=f"{key}=.*{value}.*: expected"):
        load(UpConfig, {key: value})


def test_the_announcement_has_a_command_to_paste() -> None:
    text = announcement(PLACES, "lw-key", 12.3)
    assert "curl -N http://127.0.0.1:8701/v1/conversations/hello/messages" in text
    assert "'Accept: text/event-stream'" in text
    assert "Bearer lw-key" in text
