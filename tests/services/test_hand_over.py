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

TWO = {
    "LANEWAY_REPLICAS": "2",
    "LANEWAY_SCRIPTED_RATE": "50",
    "LANEWAY_MAX_RUNNING": "8",
    "LANEWAY_REPLICA_DRAIN": "0.5",
}
LENGTH = 250


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MendedStack]:
    with MendedStack(tmp_path_factory.mktemp("two"), TWO) as running:
        yield running


@contextlib.contextmanager
def told(stack: MendedStack, log: Records, left: dict[str, int | None], number: Signals) -> Iterator[None]:
    """A signal to the replica that has the most replies, which then ends by itself; it comes back afterwards."""
    open_replies = [reply for reply in log.replies().values() if reply.owner and not reply.state.ended]
    [(owner, _)] = Counter(reply.owner for reply in open_replies).most_common(1)
    name = f"replica-{str(owner).split('-')[1]}"
    process = stack.process(name)
    process.send(number)
    until(lambda: process.exit_status() is not None)
    left[str(owner)] = process.exit_status()
    try:
        yield
    finally:
        stack.restart(name)


@pytest.mark.parametrize("number", [SIGTERM, SIGUSR1], ids=lambda number: number.name)
def test_a_replica_that_goes_hands_over_what_it_cannot_finish(two: MendedStack, number: Signals) -> None:
    left: dict[str, int | None] = {}
    with Client(two) as client, Records(two.kafka) as log:
        name = f"told-{number.name}"
        talks = ride(two, client, name, told(two, log, left, number), LENGTH)
        check(two, client, talks)
        replies = [log.replies()[talk.reply] for talk in talks]
        moved = [reply for reply in replies if reply.attempt == 2]
        print(f"{name}: pauses of {sorted(longest_pause_ms(log, reply.id) for reply in moved)} ms in the log")
    assert (list(left.values()), len(moved) > 0) == ([0], True)
    assert all(reply.attempt == 1 or (reply.attempt == 2 and reply.owner not in left) for reply in replies)


def longest_pause_ms(log: Records, reply: ReplyId) -> int:
    """Between two records of its tokens, by the broker's clock."""
    read = log.read(REPLIES)
    times = [one.timestamp_ms for one, event in read if isinstance(event, Tokens) and reply_of_key(one.key) == reply]
    return max(later - earlier for earlier, later in itertools.pairwise(times))
