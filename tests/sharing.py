"""Processes that tests share: one broker and a few stacks, each for as long as tests to come use it.

They come one after the other, since idle ones take a third of a core.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

# Fixtures in the order in which tests need them, and the group of tests that goes to one worker for each.
STACKS = dict.fromkeys(("stack", "paced", "wide"), "stacks")
SHARED = {"cassandra": "cassandra", "broker": "broker", **STACKS, "scene": "chaos", "on_three": "chaos"}
ORDER = list(SHARED)
# Groups that take minutes, the longest first, so that no worker is left alone with one of them at the end; chaos, which
# has most to do with time, comes when the other worker is at tests without processes.
FIRST = (
    "stacks",
    "browser",
    "cassandra",
    "services/test_quotas.py",
    "model",
    "services/test_model.py",
    "broker",
    "chaos",
)


def shared_by(item: pytest.Item) -> list[str]:
    """By its fixtures, and by a parameter that is the name of one."""
    runs_on = getattr(item, "callspec", None)
    names = (*getattr(item, "fixturenames", ()), *(runs_on.params.values() if runs_on else ()))
    return [name for name in names if isinstance(name, str) and name in SHARED]


def turn(item: pytest.Item, group: str) -> tuple[int, int]:
    """When a test's turn comes: with its group, and in it with the last of what it needs that others share."""
    return (*FIRST, group).index(group), max(map(ORDER.index, shared_by(item)), default=-1)


class Sharing:
    """What runs now, by fixture, and how to end it."""

    def __init__(self) -> None:
        self._ends: dict[str, Callable[[], object]] = {}
        self._last: dict[str, pytest.Item] = {}

    def runs(self, name: str, end: Callable[[], object]) -> None:
        self._ends[name] = end

    def plan(self, items: list[pytest.Item]) -> None:
        """Takes the tests in their order."""
        self._last = {name: item for item in items for name in shared_by(item)}

    def end_unused(self, after: pytest.Item) -> None:
        """Ends what none of the tests to come uses; a fixture that ends it once more finds nothing to do."""
        for name in [name for name in self._ends if self._last.get(name) is after]:
            self._ends.pop(name)()


SHARING = Sharing()
