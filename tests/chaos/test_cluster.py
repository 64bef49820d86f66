"""A cluster of three brokers loses the leader of a reply's partition in the middle of that reply."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from schemas.ids import reply_partition
from tests.chaos.cluster import Cluster
from tests.chaos.reading import Judge
from tests.chaos.scene import LONG, Scene
from tests.chaos.troubled import TroubledStack
from tests.chaos.undisturbed import undisturbed


@pytest.fixture
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.wait_ready()
        yield made
    finally:
        made.stop()


@pytest.fixture
def on_three(three: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    env = {
        "LANEWAY_KAFKA": three.bootstrap,
        "LANEWAY_KAFKA_REPLICATION": "3",
        "LANEWAY_SPLIT_STAGES": "false",
        "LANEWAY_REPLICAS": "1",
    }
    with TroubledStack(tmp_path_factory.mktemp("on-three"), env=env) as stack:
        judge = Judge(stack, undisturbed(stack.model, "scripted"))
        scene = Scene(stack, judge)
        yield scene
        scene.close()
        judge.close()


def test_a_leader_lost_in_the_middle_of_replies_costs_none(three: Cluster, on_three: Scene) -> None:
    clients = [on_three.running(f"led-{n}", text=LONG, edge=n % 2) for n in range(4)]
    assert clients[0].reply
    leader = three.leader(reply_partition(clients[0].reply))
    three.kill(leader)
    clients.append(on_three.ask("led-after"))
    on_three.finish(*clients)
    assert {client.done for client in clients} == {"finished"}
    assert three.leader(reply_partition(clients[0].reply)) != leader
    three.begin(leader)
    assert on_three.verdict() == []
