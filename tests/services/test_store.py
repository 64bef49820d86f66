"""A stack on a real Cassandra that is killed, frozen and emptied: no turn is lost, and who waits for it is told."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local.stack import laneway
from tests.services.client import Client, event_of, text_of
from tests.services.records import Records, balanced
from tests.services.running import MendedStack
from tests.sharing import SHARING
from topics.store.cassandra import CassandraStore
from topics.store.config import StoreConfig

SETTINGS = {"LANEWAY_STORE": "cassandra", "LANEWAY_CASSANDRA_PORT": "0", "LANEWAY_CASSANDRA_HEAP": "512m"}


@pytest.fixture(scope="session")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MendedStack]:
    """Everything as `laneway up --store cassandra` starts it."""
    with MendedStack(tmp_path_factory.mktemp("wide"), SETTINGS) as running:
        SHARING.runs("wide", running.stop)
        yield running


@pytest.fixture
def carol(wide: MendedStack) -> Iterator[Client]:
    with Client(wide) as client:
        yield client


@pytest.fixture
def dave(wide: MendedStack) -> Iterator[Client]:
    with Client(wide, "bob") as client:
        yield client


def said(client: Client, conversation: str, edge: int = 0) -> list[str]:
    return [message["text"] for message in client.messages(conversation, edge)]


def tell(client: Client, conversation: str, *texts: str) -> None:
    for text in texts:
        assert event_of(client.follow(client.say(conversation, text))[-1]) == "finished"


def run(stack: MendedStack, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key not in ("LANEWAY_KAFKA", "LANEWAY_STORE")}
    env |= {"LANEWAY_DATA": str(stack.folder)}
    return subprocess.run(laneway(*arguments), env=env, capture_output=True, text=True, timeout=300, check=False)


def test_while_cassandra_is_killed_what_is_known_goes_on_and_then_all_is_there_in_order(
    wide: MendedStack, carol: Client
) -> None:
    tell(carol, "warm", "one", "two")
    wide.until(lambda: len(said(carol, "warm")) == 4)
    before = wide.crashes()
    with wide.without("cassandra"):
        tell(carol, "warm", "three", "four")
        cold = carol.post("cold", "hello")
        assert (cold.status_code, cold.json()["error"]["code"]) == (503, "history_unavailable"), cold.text
        assert carol.ask("GET", "/v1/conversations/warm", 1).status_code == 503
        assert "history: holds what it has read" in wide.missing("stages")
    wide.until(lambda: len(said(carol, "warm")) == 8)
    assert said(carol, "warm", 1) == [text for text in ("one", "two", "three", "four") for _ in "qa"]
    tell(carol, "cold", "hello")
    assert {name: count for name, count in wide.crashes().items() if name != "cassandra"} == {
        name: count for name, count in before.items() if name != "cassandra"
    }


def test_two_users_conversations_of_one_name_never_meet(wide: MendedStack, carol: Client, dave: Client) -> None:
    tell(carol, "ours", "carol's")
    tell(dave, "ours", "dave's")
    wide.until(lambda: len(said(carol, "ours")) == len(said(dave, "ours")) == 2)
    assert (said(carol, "ours", 1), said(dave, "ours", 1)) == (["carol's"] * 2, ["dave's"] * 2)
    exported = json.loads(run(wide, "export", "bob").stdout)["conversations"]
    assert {message["text"] for line in exported for message in line["messages"]} == {"dave's"}


def test_a_store_that_was_lost_is_rebuilt_and_verified_by_command(
    wide: MendedStack, carol: Client, tmp_path: Path
) -> None:
    tell(carol, "kept", "before the loss")
    wide.until(lambda: len(said(carol, "kept")) == 2)
    assert carol.ask("PATCH", "/v1/conversations/kept", json={"title": "its name"}).status_code == 200
    agreed = run(wide, "store", "verify")
    assert (agreed.returncode, " 0 differences" in agreed.stdout) == (0, True), agreed.stdout + agreed.stderr
    store = CassandraStore(StoreConfig(store=wide.store))
    store._session.run(f"TRUNCATE {table}" for table in ("turns", "names", "replies", "conversations", "recent"))
    store.close()
    assert (said(carol, "kept"), run(wide, "store", "verify").returncode) == ([], 1)
    assert run(wide, "store", "rebuild").returncode == 0
    assert run(wide, "store", "verify").returncode == 0
    assert said(carol, "kept") == ["before the loss"] * 2
    file = tmp_path / "kept.json"
    assert run(wide, "export", "alice", "--conversation", "kept", "--output", str(file)).returncode == 0
    assert json.loads(file.read_text())["conversations"][0]["title"] == "its name"


def test_a_user_who_is_deleted_is_gone_from_lists_exports_and_prompts(
    wide: MendedStack, carol: Client, dave: Client
) -> None:
    for conversation in ("first", "second"):
        tell(dave, conversation, "forget me")
    wide.until(lambda: len(said(dave, "first")) == len(said(dave, "second")) == 2)
    tell(carol, "stays", "remember me")
    done = run(wide, "users", "delete", "bob", "--yes")
    assert (done.returncode, "of bob are deleted" in done.stdout) == (0, True), done.stderr
    assert dave.ask("GET", "/v1/conversations", 1).json()["conversations"] == []
    assert dave.ask("GET", "/v1/export").json()["conversations"] == []
    with Records(wide.kafka) as log:
        tell(dave, "first", "new")
        [request] = log.requests(log.posted()[-1].reply)
        assert len(request.prompt) < 4 * 60  # nothing of before is in it
        wide.until(lambda: balanced(log))
    wide.until(lambda: said(carol, "stays") == ["remember me"] * 2)


def test_a_frozen_cassandra_holds_nobody_up_for_long_and_is_caught_up_with(wide: MendedStack, carol: Client) -> None:
    tell(carol, "steady", "one")
    wide.until(lambda: len(said(carol, "steady")) == 2)
    wide.freeze("cassandra")
    try:
        tell(carol, "steady", "two")
        wide.until(lambda: "history: holds what it has read" in wide.missing("stages"))
        tell(carol, "steady", "three")
    finally:
        wide.thaw("cassandra")
    wide.until(lambda: said(carol, "steady") == [text for text in ("one", "two", "three") for _ in "qa"])
    assert text_of(carol.follow(carol.say("steady", "four"))) == "four"
