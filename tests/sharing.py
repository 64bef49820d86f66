"""Processes that tests share: one broker and a few stacks, each for as long as tests to come use it.

They come one after the other, since idle ones take a third of a core.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

# Fixtures in the order in which tests need them, and the group of tests that goes to one worker for each.
SHARED = {"broker": "broker", "stack": "stacks", "paced": "stacks", "scene": "stacks", "on_three": "stacks"}
ORDER = list(SHARED)


def shared_by(item: pytest.Item) -> list[str]:
    return [name for name in getattr(item, "fixturenames", ()) if name in SHARED]


def latest(item: pytest.Item) -> int:
    """Where a test's turn comes: that of the last it needs; before all others' if it needs none."""
    return max(map(ORDER.index, shared_by(item)), default=-1)


class Sharing:
    """What runs now, by fixture, and how to end it."""

    def __init__(self) -> None:
        self._ends: dict[str, Callable[[], object]] = {}

    def runs(self, name: str, end: Callable[[], object]) -> None:
        self._ends[name] = end

    def end_unused(self, later: list[pytest.Item]) -> None:
        """Ends what none of the tests to come uses; a fixture that ends it once more finds nothing to do."""
        for name in set(self._ends).difference(*map(shared_by, later)):
            self._ends.pop(name)()


SHARING = Sharing()
