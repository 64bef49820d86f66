"""Three brokers on this machine: every record on all of them, acknowledged by two at least."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient

from infra.local.kafka import Broker, RunningBroker
from infra.local.ports import HOST, free_ports
from tests.stack import shared_jars
from topics.catalog import REPLIES

NODES = (1, 2, 3)
CLUSTER = "bGFuZXdheS10aHJlZS0xMg"
REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "broker.session.timeout.ms": "3000",
}


@dataclass(frozen=True)
class Node(Broker):
    """One of several; `voters` are all of them, as Kafka writes them."""

    node: int = 1
    voters: str = ""

    def cluster_id(self) -> str:
        return CLUSTER

    def settings(self) -> dict[str, str]:
        own = {"node.id": str(self.node), "controller.quorum.voters": self.voters}
        return {**super().settings(), **REPLICATED, **own}


class Cluster:
    """Starts and stops with the thread that made it."""

    def __init__(self, folder: Path) -> None:
        jars, ports = shared_jars(), free_ports(2 * len(NODES))
        voters = ",".join(f"{node}@{HOST}:{ports[2 * node - 1]}" for node in NODES)
        self._nodes = {
            node: Node(
                folder / str(node), jars, ports[2 * node - 2], ports[2 * node - 1], "256m", node=node, voters=voters
            )
            for node in NODES
        }
        self.bootstrap = ",".join(node.bootstrap for node in self._nodes.values())
        self._running = {name: RunningBroker(node) for name, node in self._nodes.items()}

    def wait_ready(self) -> None:
        for running in self._running.values():
            running.wait_ready(120.0)

    def leader(self, partition: int) -> int:
        """The node that leads a partition of `replies`."""
        found = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(REPLIES, timeout=30)
        return int(found.topics[REPLIES].partitions[partition].leader)

    def kill(self, node: int) -> None:
        self._running[node].process.kill()

    def begin(self, node: int) -> None:
        self._running[node] = RunningBroker(self._nodes[node])

    def stop(self) -> None:
        for running in self._running.values():
            running.process.kill()
