"""One machine's Laneway: a Kafka broker, the stages, the replicas and two edges, as processes.

In: the settings and a data folder. Out: all of it ready, with an API key for each user, and a state
file that follows every change. `children` decides what runs; Stack runs it. Each process is told
what it needs by environment variables only.
"""

from __future__ import annotations

import http.client
import itertools
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from infra.config import CASSANDRA, SQLITE, UpConfig
from infra.local import cassandra, kafka, keys
from infra.local.errors import StartError
from infra.local.ports import HOST, free_ports, preferred
from infra.local.processes import Child
from infra.local.state import DataFolder, Up, end_leftovers
from infra.local.supervisor import Row, Supervisor
from schemas.tokenizer import ChatSettings
from topics.config import KafkaConfig
from topics.store.config import StoreConfig

MODEL = "smollm2-135m-instruct"
MINI = "mini"  # the pool, and the name of the model in it


@dataclass(frozen=True)
class Places:
    """Where the parts of one stack meet."""

    kafka: str
    edge_ports: tuple[int, ...]
    model: Path
    reply_partitions: int = 16
    main_pool: str = "main"
    store: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    metrics_ports: Mapping[str, int] = field(default_factory=dict)

    @property
    def edges(self) -> tuple[str, ...]:
        return tuple(f"http://{HOST}:{port}" for port in self.edge_ports)

    @property
    def metrics(self) -> dict[str, str]:
        """Where each process serves /metrics, /health and /ready, by its name."""
        edges = {f"edge-{n}": port for n, port in enumerate(self.edge_ports)}
        return {name: f"http://{HOST}:{port}" for name, port in {**self.metrics_ports, **edges}.items()}

    @property
    def urls(self) -> tuple[str, ...]:
        """The edges by each name that a browser here may call them."""
        return tuple(f"http://{name}:{port}" for name in (HOST, "localhost") for port in self.edge_ports)


def children(config: UpConfig, folder: DataFolder, places: Places) -> list[Child]:
    """The processes beside the broker, in order of start: stages, replicas, edges."""
    shared = {
        "LANEWAY_DATA": str(folder.path),
        "LANEWAY_KAFKA": places.kafka,
        "LANEWAY_KEYS": str(folder.keys),
        "LANEWAY_CELL_KEY": str(folder.cell_key),
        "LANEWAY_REPLICA": config.replica,
        "LANEWAY_MODEL": str(places.model),
        **places.env,
        "LANEWAY_STORE": places.store or str(folder.store),
    }

    def announced(name: str, *arguments: str, grace: float, **more: str) -> Child:
        file = folder.ready / name
        own = {"LANEWAY_READY_FILE": str(file), "LANEWAY_METRICS_PORT": str(places.metrics_ports.get(name, 0)), **more}
        return Child(name, laneway(*arguments), {**shared, **own}, says_ready(file), grace)

    public = {
        "LANEWAY_EDGES": ",".join(places.urls),
        "LANEWAY_ORIGINS": ",".join((*places.urls, *config.origins)),
        "LANEWAY_TLS_CERTIFICATE": "",
    }

    def edge(name: str, port: int, homes: str) -> Child:
        argv = laneway("edge", "--port", str(port))
        env = {**shared, **public, "LANEWAY_EDGE_PARTITIONS": homes}
        return Child(name, argv, env, answers_ready(port), grace=15.0)

    homes = split(places.reply_partitions, len(places.edge_ports))
    return [
        *(announced(name, *command, grace=15.0) for name, command in stage_processes(config)),
        *(
            announced(name, *command, grace=30.0, LANEWAY_POOL=pool)
            for name, pool, command in replica_processes(config, places.main_pool)
        ),
        *(edge(f"edge-{n}", port, homes[n]) for n, port in enumerate(places.edge_ports)),
    ]


def stage_processes(config: UpConfig) -> list[tuple[str, tuple[str, ...]]]:
    """Names and commands of the processes that run the stages: one for all, or one each."""
    if config.split_stages:
        return [(name, (name,)) for name in config.stages]
    return [("stages", ("stages", *config.stages))]


def replica_processes(config: UpConfig, pool: str = "main") -> list[tuple[str, str, tuple[str, ...]]]:
    """Names, pools and commands; with `mini` one more in the pool of that name."""
    mini = [("replica-mini", MINI, ("replica", "--slot", "0"))] if config.mini else []
    return [*((f"replica-{n}", pool, ("replica", "--slot", str(n))) for n in range(config.replicas)), *mini]


def metrics_ports(config: UpConfig) -> dict[str, int]:
    """A free port for each process that has none of its own."""
    replicas = [name for name, _, _ in replica_processes(config)]
    names = [*(name for name, _ in stage_processes(config)), *replicas]
    return dict(zip(names, free_ports(len(names)), strict=True))


def served(model: Path, *, mini: bool) -> dict[str, str]:
    """What processes are told of the model in a folder: the name that clients ask for, its advised sampling, and that
    it is served once more as the mini model.
    """
    settings = ChatSettings.read(model / "laneway.json")
    return {
        "LANEWAY_MODELS": f"{settings.name},{MINI}" if mini else settings.name,
        "LANEWAY_TEMPERATURE": str(settings.temperature),
        "LANEWAY_TOP_P": str(settings.top_p),
        **({"LANEWAY_MINI_MODEL": MINI} if mini else {}),
    }


def split(partitions: int, edges: int) -> list[str]:
    """Home partitions for each edge, such as `0-7` and `8-15`; shared when there are fewer than edges."""
    if partitions < edges:
        return [f"0-{partitions - 1}"] * edges
    bounds = [partitions * n // edges for n in range(edges + 1)]
    return [f"{first}-{end - 1}" for first, end in itertools.pairwise(bounds)]


def laneway(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "infra.cli", *arguments)


def says_ready(file: Path) -> Callable[[int], bool]:
    """Ready once the process has written its own pid to the file: one left by an earlier process does not count."""
    return lambda pid: file.exists() and file.read_text().strip() == str(pid)


def answers_ready(port: int) -> Callable[[int], bool]:
    return lambda _: get_status(port, "/ready") == 200


def get_status(port: int, path: str) -> int | None:
    """The status of a GET on this machine; None when nobody answers."""
    connection = http.client.HTTPConnection(HOST, port, timeout=2.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class Stack:
    """All processes of one data folder; its owner holds the folder's lock, and its thread outlives them."""

    def __init__(
        self, config: UpConfig, log: KafkaConfig, say: Callable[[str], None], users: tuple[str, ...] = ("demo",)
    ) -> None:
        pools = tuple(dict.fromkeys((*log.pools, MINI))) if config.mini else log.pools
        self.config, self.log, self.say = config, replace(log, pools=pools), say
        self.folder = DataFolder(config.data)
        self.folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.supervisor = Supervisor(self.folder.logs, say, self._changed)
        self.keys = {user: self._key(user) for user in users}
        keys.keep(self.folder.cell_key, secrets.token_hex(32))
        self._up: Up | None = None

    def start(self, env: Mapping[str, str], ensure_topics: Callable[[KafkaConfig], object]) -> Places:
        """Starts everything and waits until it is ready. `env` goes to each process. Raises LocalError."""
        self.clear_leftovers()
        self._up = Up.of_this_process((), next(iter(self.keys.values())), self.config.kafka)
        self._changed([])
        ports = self._ports("edges", self.config.edge_port)
        model = self.model()
        self.folder.ready.mkdir(parents=True, exist_ok=True)
        node = self.start_node()
        address = self.config.kafka or self.start_broker()
        env = {**served(model, mini=self.config.mini), "LANEWAY_POOLS": ",".join(self.log.pools), **env}
        ports_of = metrics_ports(self.config)
        store = self.store(node)
        places = Places(address, ports, model, self.log.replies, self.log.pools[0], store, env, ports_of)
        self._up = replace(self._up, edges=places.edges, kafka=places.kafka, metrics=places.metrics, store=store)
        ensure_topics(replace(self.log, kafka=places.kafka))
        self.say("starting the stages, the replica and two edges")
        for child in children(self.config, self.folder, places):
            self.supervisor.start(child)
        self.supervisor.wait_ready(self.config.start_timeout)
        self._up = replace(self._up, ready=True)
        self._changed(self.supervisor.rows())
        return places

    def start_broker(self) -> str:
        """A broker on this folder's records; returns its address."""
        jars = kafka.resolve_jars(self.folder.jars, self.say)
        port, controller_port = self._ports("Kafka", self.config.kafka_port)
        broker = kafka.Broker(self.folder.kafka, jars, port, controller_port, self.config.kafka_heap)
        broker.prepare()
        self.say(f"starting Apache Kafka {kafka.VERSION} on {broker.bootstrap}")
        self.supervisor.start(broker.child())
        self.supervisor.wait_ready(self.config.start_timeout)
        return broker.bootstrap

    def start_node(self) -> cassandra.Node | None:
        """A Cassandra on this folder's data, if that is asked for; it is not ready yet."""
        if self.config.store != CASSANDRA:
            return None
        jars = cassandra.resolve_jars(self.folder.jars, self.say)
        port, storage_port = self._ports("Cassandra", self.config.cassandra_port)
        node = cassandra.Node(self.folder.cassandra, jars, port, storage_port, self.config.cassandra_heap)
        node.prepare()
        self.say(f"starting Apache Cassandra {cassandra.VERSION} on {node.address}")
        self.supervisor.start(node.child())
        return node

    def store(self, node: cassandra.Node | None) -> str:
        """Where conversations are kept: in that node, once it is ready and has its tables, or as the settings say."""
        if node is None:
            return str(self.folder.store) if self.config.store == SQLITE else self.config.store
        from topics.store.cassandra import migrate

        self.supervisor.wait_ready(self.config.start_timeout)
        config = StoreConfig(store=f"cassandra://{node.address}/laneway")
        migrate(config, cassandra.ONE_COPY)
        return config.store

    def model(self) -> Path:
        """The model's folder, fetched if need be. A scripted replica and the stages use its tokenizer."""
        if self.config.model:
            return Path(self.config.model).absolute()
        # Reading a model file takes packages that nothing else here needs.
        from infra.local.model import ModelUnavailable, fetch

        try:
            return fetch(self.folder.models / MODEL, self.say)
        except ModelUnavailable as error:
            raise StartError(str(error)) from error

    def clear_leftovers(self) -> None:
        """Ends processes that an earlier stack on this folder left when it was killed."""
        before = self.folder.read()
        if before and (count := end_leftovers(before, grace=10.0)):
            self.say(f"ended {count} processes left by an earlier run")

    def stop(self) -> None:
        self.supervisor.drain()
        self.folder.state_file.unlink(missing_ok=True)

    def _ports(self, who: str, first: int) -> tuple[int, ...]:
        ports = preferred(first, 2)
        if first and ports != (first, first + 1):
            self.say(f"{who}: not all of ports {first} and {first + 1} are free, taking {ports[0]} and {ports[1]}")
        return ports

    def _key(self, user: str) -> str:
        return keys.keep_key(self.folder.keys, self.folder.path / f"{user}.key", user)

    def _changed(self, rows: list[Row]) -> None:
        if self._up is not None:
            self._up = replace(self._up, processes=tuple(rows))
            self.folder.write(self._up)
