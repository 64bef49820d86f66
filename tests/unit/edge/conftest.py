"""One edge for the tests that leave it as it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.edge.running_edge import RunningEdge, three_tokens


@pytest.fixture(scope="session")
def shared_edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEdge]:
    with RunningEdge(tmp_path_factory.mktemp("edge")) as running:
        yield running


@pytest.fixture
def edge(shared_edge: RunningEdge) -> RunningEdge:
    shared_edge.script = three_tokens
    shared_edge.posted.clear()
    return shared_edge
