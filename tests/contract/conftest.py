"""What each contract suite runs on: the log in memory and on a real broker, the store in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.contract.clusters import Cluster, KafkaCluster, MemoryCluster
from topics.store.contract import Store
from topics.store.sqlite import SqliteStore

settings.register_profile("laneway", deadline=None)
settings.load_profile("laneway")


@pytest.fixture(params=["memory", "kafka"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    if request.param == "memory":
        return MemoryCluster()
    return KafkaCluster(request.getfixturevalue("broker").bootstrap)


@pytest.fixture(params=["sqlite"])
def store(tmp_path: Path) -> Iterator[Store]:
    opened = SqliteStore(tmp_path / "conversations.db")
    yield opened
    opened.close()
