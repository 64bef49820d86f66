"""Processes are told to leave in the middle of traffic: each leaves by itself, and no reply is the worse for it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

from tests.services.client import Client
from tests.services.running import REPLICA, MendedStack
from tests.services.test_crashes import check, ride

STAGES = ("intake", "router", "settlement", "history", "supervisor")


@contextlib.contextmanager
def told_to_leave(stack: MendedStack, *names: str) -> Iterator[dict[str, int | None]]:
    """Sends SIGTERM to one after the other; what each exited with. Starts them again afterwards."""
    try:
        yield {name: stack.kill(name, signal.SIGTERM) for name in names}
    finally:
        stack.restart(*names)


def test_stages_leave_with_commits_in_flight(paced: MendedStack, wendy: Client) -> None:
    left: dict[str, int | None] = {}

    @contextlib.contextmanager
    def trouble() -> Iterator[None]:
        with told_to_leave(paced, *STAGES) as statuses:
            left.update(statuses)
            yield

    check(paced, wendy, ride(paced, wendy, "stages-left", trouble()))
    assert left == dict.fromkeys(STAGES, 0)


def test_a_replica_and_an_edge_leave_with_replies_running(paced: MendedStack, wendy: Client) -> None:
    left: dict[str, int | None] = {}

    @contextlib.contextmanager
    def trouble() -> Iterator[None]:
        with told_to_leave(paced, REPLICA, "edge-0") as statuses:
            left.update(statuses)
            yield

    check(paced, wendy, ride(paced, wendy, "both-left", trouble()))
    assert left == {REPLICA: 0, "edge-0": 0}
