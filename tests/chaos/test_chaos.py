"""A real stack under faults, with the checker as its judge: named cells, then a seed of everything at once.

`make chaos` runs other seeds, and longer ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.chaos.cells import ABANDON_AFTER_S, CELLS
from tests.chaos.plan import plan_of
from tests.chaos.reading import Judge
from tests.chaos.run import Run
from tests.chaos.scene import Scene
from tests.chaos.telling import lines
from tests.chaos.troubled import TroubledStack
from tests.chaos.undisturbed import undisturbed

SEED, MINUTES = 3, 2.0


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TroubledStack]:
    """Two scripted replicas, and listeners that are soon missed."""
    env = {"LANEWAY_ABANDON_AFTER": str(ABANDON_AFTER_S)}
    with TroubledStack(tmp_path_factory.mktemp("chaos"), env=env) as running:
        yield running


@pytest.fixture(scope="module")
def scene(troubled: TroubledStack) -> Iterator[Scene]:
    judge = Judge(troubled, undisturbed(troubled.model, "scripted"))
    made = Scene(troubled, judge)
    yield made
    made.close()
    judge.close()


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.__name__)
def test_a_fault_at_a_state_breaks_no_promise(scene: Scene, cell: Callable[[Scene], None]) -> None:
    try:
        cell(scene)
    finally:
        violations = scene.verdict()
    assert violations == []


def test_a_seed_of_everything_at_once_breaks_no_promise(scene: Scene) -> None:
    outcome = Run(plan_of(SEED, MINUTES), scene.stack, scene.judge, print).outcome(tuple(scene.clients))
    print("\n".join(lines(outcome)))
    assert list(map(str, outcome.violations)) == []
    assert {kind for kind, _ in outcome.fallen} >= {"kill", "freeze", "leave"}
    assert {"finished", "stopped"} <= {told.state for told in outcome.accepted}
    assert any(told.attempt > 1 for told in outcome.accepted)
