"""One of two replicas goes in mid-stream: it says what it gives up, the other goes on, clients see a short pause."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator
from signal import SIGTERM, SIGUSR1, Signals

import pytest

from schemas.ids import ReplyId
from schemas.reply_records import Tokens
from tests.services.client import Client
from tests.services.records import Records
from tests.services.running import MendedStack, until
from tests.services.test_crashes import check, ride
from topics.catalog import REPLIES
from topics.outputs import reply_of_key

TWO = {"LANEWAY_REPLICAS": "2", "LANEWAY_SCRIPTED_RATE": "50", "LANEWAY_MAX_RUNNING": "8"}
SHORT, LONG = "0.5", "3600"
CASES = [
    pytest.param(SHORT, (SIGTERM,), id="time is up"),
    pytest.param(LONG, (SIGTERM, SIGTERM), id="second signal"),
    pytest.param(LONG, (SIGUSR1,), id="notice"),
]
LENGTH = 250


@pytest.fixture(scope="module", params=[SHORT, LONG])
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MendedStack]:
    env = {**TWO, "LANEWAY_REPLICA_DRAIN": request.param}
    with MendedStack(tmp_path_factory.mktemp("two"), env) as running:
        yield running


@contextlib.contextmanager
def told(stack: MendedStack, log: Records, left: dict[str, int | None], *numbers: Signals) -> Iterator[None]:
    """Signals to the replica that has the most replies, which then ends by itself; it comes back afterwards."""
    open_replies = [reply for reply in log.replies().values() if reply.owner and not reply.state.ended]
    [(owner, _)] = Counter(reply.owner for reply in open_replies).most_common(1)
    name = f"replica-{str(owner).split('-')[1]}"
    process = stack.process(name)
    for number in numbers:
        process.send(number)
    until(lambda: process.exit_status() is not None)
    left[str(owner)] = process.exit_status()
    try:
        yield
    finally:
        stack.restart(name)


@pytest.mark.parametrize(("two", "numbers"), CASES, indirect=["two"])
def test_a_replica_that_is_told_to_go_hands_over_what_it_cannot_finish(
    two: MendedStack, numbers: tuple[Signals, ...]
) -> None:
    left: dict[str, int | None] = {}
    with Client(two) as client, Records(two.kafka) as log:
        name = f"told-{'-'.join(number.name for number in numbers)}"
        talks = ride(two, client, name, told(two, log, left, *numbers), LENGTH)
        check(two, client, talks)
        replies = [log.replies()[talk.reply] for talk in talks]
        moved = [reply for reply in replies if reply.attempt == 2]
        print(f"{name}: pauses of {sorted(longest_pause_ms(log, reply.id) for reply in moved)} ms in the log")
    assert (list(left.values()), len(moved) > 0) == ([0], True)
    assert all(reply.attempt <= 2 and reply.owner not in left for reply in replies)


@pytest.mark.parametrize("two", [LONG], indirect=True)
def test_a_replica_with_time_finishes_what_it_has_and_begins_nothing(two: MendedStack) -> None:
    left: dict[str, int | None] = {}
    with Client(two) as client, Records(two.kafka) as log:
        talks = ride(two, client, "with-time", told(two, log, left, SIGTERM), LENGTH)
        check(two, client, talks)
        replies = [log.replies()[talk.reply] for talk in talks]
    assert list(left.values()) == [0]
    assert [reply.attempt for reply in replies] == [1] * len(replies)
    assert [reply.owner in left for reply in replies][-1] is False
    assert any(reply.owner in left for reply in replies)


def longest_pause_ms(log: Records, reply: ReplyId) -> int:
    """Between two records of its tokens, by the broker's clock."""
    read = log.read(REPLIES)
    times = [one.timestamp_ms for one, event in read if isinstance(event, Tokens) and reply_of_key(one.key) == reply]
    return max(later - earlier for earlier, later in itertools.pairwise(times))
