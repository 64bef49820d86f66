"""Processes that tests share: one broker and a few stacks, each for as long as tests to come use it.

They come one after the other, since idle ones take a third of a core.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

# Fixtures in the order in which tests need them, and the group of tests that goes to one worker for each.
STACKS = ("stack", "paced", "wide", "scene", "on_three")
SHARED = {"cassandra": "cassandra", "broker": "broker"} | dict.fromkeys(STACKS, "stacks")
ORDER = list(SHARED)


def shared_by(item: pytest.Item) -> list[str]:
    """By its fixtures, and by a parameter that is the name of one."""
    runs_on = getattr(item, "callspec", None)
    names = (*getattr(item, "fixturenames", ()), *(runs_on.params.values() if runs_on else ()))
    return [name for name in names if isinstance(name, str) and name in SHARED]


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
