"""What a local Cassandra is told, and what `laneway up` and `laneway store` make of their settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from infra.commands.store import copies
from infra.config import UpConfig
from infra.local.cassandra import Node
from infra.local.ports import free_ports
from infra.local.stack import Places, children
from infra.local.state import DataFolder
from schemas.settings import SettingError, load

JARS = (Path("/jars/jamm-0.4.0.jar"), Path("/jars/cassandra-all-5.0.6.jar"))


def test_a_node_listens_on_this_machine_only_and_writes_before_it_answers(tmp_path: Path) -> None:
    node = Node(tmp_path, JARS, 9042, 7000)
    node.prepare()
    settings = json.loads((tmp_path / "cassandra.yaml").read_text())
    assert (settings["listen_address"], settings["rpc_address"]) == ("127.0.0.1", "127.0.0.1")
    assert (settings["native_transport_port"], settings["storage_port"]) == (9042, 7000)
    assert settings["commitlog_sync"] == "group"
    assert all(str(tmp_path) in str(value) for key, value in settings.items() if "director" in key)


def test_a_node_that_is_not_there_does_not_answer() -> None:
    port, storage_port = free_ports(2)
    assert not Node(Path("/nowhere"), JARS, port, storage_port).answers()


def test_every_process_is_told_which_store_the_stack_has() -> None:
    env = {"LANEWAY_STORE": "cassandra"}
    places = Places("127.0.0.1:9092", (8701, 8702), Path("/m"), store="cassandra://127.0.0.1:9042/laneway", env=env)
    for child in children(UpConfig(store="cassandra"), DataFolder(Path("/data")), places):
        assert child.env["LANEWAY_STORE"] == "cassandra://127.0.0.1:9042/laneway"


def test_a_store_that_is_none_stops_up() -> None:
    with pytest.raises(SettingError, match="LANEWAY_STORE='cassandra://one': expected cassandra://"):
        load(UpConfig, {"LANEWAY_STORE": "cassandra://one"})


@pytest.mark.parametrize(
    ("text", "replication"),
    [
        ("3", "{'class': 'SimpleStrategy', 'replication_factor': 3}"),
        ("eu:3,us-1:2", "{'class': 'NetworkTopologyStrategy', 'eu': 3, 'us-1': 2}"),
    ],
)
def test_copies_are_a_number_or_one_for_each_datacenter(text: str, replication: str) -> None:
    assert copies(text) == replication


@pytest.mark.parametrize("text", ["0", "eu", "eu:0", "", "3;DROP", "eu:3,"])
def test_what_is_no_number_of_copies_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected a number such as 3"):
        copies(text)
