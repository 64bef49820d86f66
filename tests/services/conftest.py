"""Users of two shared stacks: one as `laneway up` starts it, and one for tests that kill, stop and poison."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.client import Client
from tests.services.records import Records
from tests.services.running import MendedStack
from tests.sharing import SHARING
from tests.stack import Stack

BACKLOG = 5
USER = "wendy"  # her messages are in partition 0, the one that tests poison
PACED = {
    "LANEWAY_SPLIT_STAGES": "true",
    "LANEWAY_SCRIPTED_RATE": "50",
    "LANEWAY_MAX_RUNNING": "8",
    "LANEWAY_REPLICA_DRAIN": "0.2",
    "LANEWAY_BACKLOG": str(BACKLOG),
    "LANEWAY_SEND_TIMEOUT": "2",
    "LANEWAY_KEEP_ALIVE": "0.5",
}


@pytest.fixture(scope="session")
def paced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MendedStack]:
    """Each stage a process of its own, 50 tokens/s, room for 8 replies and a backlog of 5."""
    with MendedStack(tmp_path_factory.mktemp("paced"), PACED, (USER,)) as running:
        SHARING.runs("paced", running.stop)
        yield running


@pytest.fixture
def alice(stack: Stack) -> Iterator[Client]:
    with Client(stack) as client:
        yield client


@pytest.fixture
def bob(stack: Stack) -> Iterator[Client]:
    with Client(stack, "bob") as client:
        yield client


@pytest.fixture
def log(stack: Stack) -> Iterator[Records]:
    with Records(stack.kafka) as records:
        yield records


@pytest.fixture
def wendy(paced: MendedStack) -> Iterator[Client]:
    """A user of the paced stack."""
    with Client(paced, USER) as client:
        yield client


@pytest.fixture
def paced_log(paced: MendedStack) -> Iterator[Records]:
    with Records(paced.kafka) as records:
        yield records
