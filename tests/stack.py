"""A whole Laneway for end-to-end tests: real processes on free ports in a folder of its own.

In: a folder, the users, environment variables for every process. Out: edges that are ready, and
means to kill, freeze and restart each process. It is `infra.local.stack` without its restarts: what
a test kills stays dead until the test starts it again.
"""

from __future__ import annotations

import os
import signal
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from infra.config import UpConfig
from infra.local import stack
from infra.local.cassandra import Node, RunningNode
from infra.local.cassandra import resolve_jars as resolve_cassandra
from infra.local.kafka import Broker, RunningBroker, resolve_jars
from infra.local.ports import free_ports
from infra.local.processes import Process
from infra.local.state import DataFolder
from infra.local.up import ensure_topics
from schemas.settings import load
from topics.config import KafkaConfig

SHARED = DataFolder(Path(__file__).parent.parent / ".laneway")


class Stack:
    """Use as a context, in the thread that lives longest: processes end with the thread that started them.

    `urls` are the edges, `keys` the API key of each user, `kafka` the broker's address.
    """

    def __init__(
        self, folder: Path, env: Mapping[str, str] | None = None, users: tuple[str, ...] = ("alice", "bob")
    ) -> None:
        small = {"LANEWAY_REPLICA": "scripted", "LANEWAY_KAFKA_HEAP": "384m", "LANEWAY_START_TIMEOUT": "600"}
        self.env = {**small, **(env or {})}
        self._stack = stack.Stack(config(folder, self.env), load(KafkaConfig, os.environ | self.env), print, users)
        self.folder = self._stack.folder.path
        self.keys = self._stack.keys
        self.urls: tuple[str, ...] = ()
        self.kafka = self.store = ""
        self._metrics: Mapping[str, str] = {}

    def start(self) -> Self:
        """Raises StartError, with the end of a log, when something does not come up."""
        try:
            places = self._stack.start(self.env, ensure_topics)
        except BaseException:
            self.stop()
            raise
        self.urls, self.kafka, self.store, self._metrics = places.edges, places.kafka, places.store, places.metrics
        return self

    def kill(self, name: str, signum: int = signal.SIGKILL) -> int | None:
        """Ends a process such as `replica-0`, `edge-1`, `stages` or `kafka`; its exit status once it has gone."""
        return self._stack.supervisor.stop(name, signum)

    def process(self, name: str) -> Process:
        """The one that runs now; it tells of its end also when another runs in its place."""
        return self._stack.supervisor._all[name].process

    def freeze(self, name: str) -> None:
        self._stack.supervisor.signal(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._stack.supervisor.signal(name, signal.SIGCONT)

    def restart(self, name: str) -> None:
        """Starts it, after stopping it if it runs, and waits until everything that should run is ready."""
        self._stack.supervisor.restart(name)
        self._stack.supervisor.wait_ready(self._stack.config.start_timeout)

    def missing(self, name: str) -> str:
        """What a process lacks to be ready, as its /ready says; "" when it is, or answers nobody."""
        try:
            with urllib.request.urlopen(f"{self._metrics[name]}/ready", timeout=10):
                return ""
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError:
            return ""

    def log(self, name: str) -> str:
        return (self._stack.folder.logs / f"{name}.log").read_text()

    def stop(self) -> None:
        self._stack.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def shared_jars() -> tuple[Path, ...]:
    """Kafka's class path, kept where `make up` in this checkout keeps it."""
    return resolve_jars(SHARED.jars, print)


def small_broker(folder: Path) -> RunningBroker:
    """A broker on free ports that goes on with the records in `folder`; not ready yet."""
    port, controller_port = free_ports(2)
    return RunningBroker(Broker(folder, shared_jars(), port, controller_port, heap="384m"))


def small_node(folder: Path) -> RunningNode:
    """A Cassandra on free ports that goes on with the data in `folder`; not ready yet."""
    port, storage_port = free_ports(2)
    return RunningNode(Node(folder, resolve_cassandra(SHARED.jars, print), port, storage_port, heap="512m"))


def config(folder: Path, env: Mapping[str, str]) -> UpConfig:
    """Free ports, and links to the shared jars and models where the stack looks for its own."""
    shared_jars()
    own = DataFolder(folder)
    own.kafka.mkdir(parents=True)
    own.jars.symlink_to(SHARED.jars)
    SHARED.models.mkdir(exist_ok=True)
    own.models.symlink_to(SHARED.models)
    places = {"LANEWAY_DATA": str(folder), "LANEWAY_KAFKA_PORT": "0", "LANEWAY_EDGE_PORT": "0"}
    return load(UpConfig, {**os.environ, **places, **env})
