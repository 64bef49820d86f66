"""Fixtures that start real processes: a Kafka broker, and a whole Laneway. One of each for all tests that ask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.main import SPINS
from infra.local.cassandra import RunningNode
from infra.local.kafka import RunningBroker
from tests.sharing import SHARED, SHARING, shared_by, turn
from tests.stack import Stack, small_broker, small_node

# Torch reads it when it is imported: a thread that spins long at a barrier starves the brokers beside the tests.
os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


TESTS = Path(__file__).parent
# Tests of one of these folders share processes of their own.
TOGETHER = ("browser", "model")


def group_of(item: pytest.Item) -> str:
    """Tests that share processes go to one worker; of the others, those of one file."""
    file = item.path.relative_to(TESTS)
    shared = [SHARED[name] for name in shared_by(item)]
    return shared[0] if shared else file.parts[0] if file.parts[0] in TOGETHER else str(file)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    groups = {item: group_of(item) for item in items}
    items.sort(key=lambda item: turn(item, groups[item]))
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_runtest_teardown(item: pytest.Item) -> None:
    SHARING.end_unused(item)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Without groups every worker would start every broker and stack, and the tests would starve each other."""
    if getattr(session.config.option, "loadgroup", False) and any("@" not in item.nodeid for item in session.items):
        raise pytest.UsageError("pytest-xdist did not group the tests: this version of pytest and of it do not agree")
    SHARING.plan(session.items)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A real broker without topics; `broker.bootstrap` is its address. Tests share it: use names of your own."""
    running = small_broker(tmp_path_factory.mktemp("kafka"))
    try:
        running.wait_ready()
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def cassandra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A real Cassandra without keyspaces; tests share it: use names of your own."""
    running = small_node(tmp_path_factory.mktemp("cassandra"))
    try:
        running.wait_ready()
        SHARING.runs("cassandra", running.process.kill)  # what it would still write is read by nobody
        yield running
    finally:
        running.process.kill()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Stages, a scripted replica and two edges on a broker of their own, for tests that break nothing."""
    with Stack(tmp_path_factory.mktemp("stack")) as running:
        SHARING.runs("stack", running.stop)
        yield running
