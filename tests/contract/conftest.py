"""What each contract suite runs on: the log in memory and on a real broker, the store in a file and on Cassandra."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from infra.local.cassandra import ONE_COPY, RunningNode
from tests.contract.clusters import Cluster, KafkaCluster, MemoryCluster
from topics.store.cassandra import CassandraStore, migrate
from topics.store.config import StoreConfig
from topics.store.contract import Store
from topics.store.sqlite import SqliteStore

TABLES = ("turns", "names", "replies", "conversations", "recent")

settings.register_profile("laneway", deadline=None)
settings.load_profile("laneway")


@pytest.fixture(params=["memory", "kafka"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    if request.param == "memory":
        return MemoryCluster()
    return KafkaCluster(request.getfixturevalue("broker").bootstrap)


@pytest.fixture(scope="session")
def keyspace(cassandra: RunningNode) -> StoreConfig:
    """A store on the shared Cassandra, with its tables."""
    config = StoreConfig(store=f"cassandra://{cassandra.address}/contract")
    migrate(config, ONE_COPY)
    return config


@pytest.fixture(scope="session")
def opened(keyspace: StoreConfig) -> Iterator[CassandraStore]:
    store = CassandraStore(keyspace)
    yield store
    store.close()


@pytest.fixture
def on_cassandra(opened: CassandraStore) -> CassandraStore:
    opened._session.run(f"TRUNCATE {table}" for table in TABLES)
    return opened


@pytest.fixture(params=["sqlite", "cassandra"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "cassandra":
        yield request.getfixturevalue("on_cassandra")
        return
    opened = SqliteStore(tmp_path / "conversations.db")
    yield opened
    opened.close()
