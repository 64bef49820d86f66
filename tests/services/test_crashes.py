"""Processes are killed in the middle of traffic: every accepted reply ends once, whole, and is paid for once."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from schemas.ids import ReplyId
from schemas.reply import State
from tests.services.client import Client, event_of, ids_of, text_of
from tests.services.records import Records, balanced
from tests.services.running import REPLICA, MendedStack

RUNNING = 4
BEGUN = 10
VICTIMS = [
    ("intake",), ("router",), ("settlement",), ("history",), ("supervisor",), (REPLICA,), ("edge-0",), ("kafka",),
    ("supervisor", "router", REPLICA),
]  # fmt: skip


@dataclass
class Talk:
    """One message and what its user hears, from the post to the end, whatever happens on the way."""

    conversation: str
    text: str
    edge: int
    reply: ReplyId = field(init=False)
    heard: list[bytes] = field(default_factory=list)

    def hold(self, client: Client) -> None:
        self.reply = client.say(self.conversation, self.text, self.edge)
        client.follow(self.reply, self.edge, into=self.heard)


def ride(
    stack: MendedStack, client: Client, name: str, trouble: contextlib.AbstractContextManager[None], length: int = 120
) -> list[Talk]:
    """Replies that run when the trouble begins, and one that is asked for before it is over."""
    talks = [Talk(f"{name}-{n}", f"{n} for {name}:" + " on" * length, n % 2) for n in range(RUNNING + 1)]
    with ThreadPoolExecutor(RUNNING + 1) as pool:
        held: list[Future[None]] = [pool.submit(talk.hold, client) for talk in talks[:-1]]
        stack.until(lambda: all(len(talk.heard) > BEGUN for talk in talks[:-1]))
        with trouble:
            held.append(pool.submit(talks[-1].hold, client))
        stack.until(lambda: all(future.done() for future in held))
    for future in held:
        future.result()
    return talks


def check(stack: MendedStack, client: Client, talks: list[Talk]) -> None:
    """Heard, stored and counted are the same; and so they are for every reply before."""
    for talk in talks:
        assert text_of(talk.heard) == talk.text
        assert ids_of(talk.heard) == list(range(len(ids_of(talk.heard))))
        assert event_of(talk.heard[-1]) == "finished"
    for talk in talks:
        stack.until(lambda talk=talk: len(client.messages(talk.conversation)) == 2)
        assert [message["text"] for message in client.messages(talk.conversation)] == [talk.text] * 2
    with Records(stack.kafka) as log:
        stack.until(lambda: balanced(log))


@pytest.mark.parametrize("victims", VICTIMS, ids="+".join)
def test_a_kill_costs_no_reply(paced: MendedStack, wendy: Client, paced_log: Records, victims: tuple[str, ...]) -> None:
    name = "+".join(victims).replace("+", "-")
    talks = ride(paced, wendy, f"killed-{name}", paced.without(*victims))
    check(paced, wendy, talks)
    if REPLICA in victims:
        assert all(paced_log.replies()[talk.reply].attempt > 1 for talk in talks[:-1])


def test_a_broker_that_is_told_to_stop_and_starts_again_costs_no_reply(paced: MendedStack, wendy: Client) -> None:
    check(paced, wendy, ride(paced, wendy, "told-to-stop", paced.without("kafka", signum=signal.SIGTERM)))


def test_a_whole_stack_goes_on_where_it_was_stopped(paced: MendedStack, wendy: Client) -> None:
    name = "before-and-after"
    wendy.follow(wendy.say(name, "before the stop"))
    talks = ride(paced, wendy, "stopped", paced.stopped(), length=400)
    check(paced, wendy, talks)
    reply = wendy.say(name, "after the stop")
    assert text_of(wendy.follow(reply)) == "after the stop"
    with Records(paced.kafka) as log:
        assert all(log.replies()[talk.reply].attempt > 1 for talk in talks[:-1])
        [request] = log.requests(reply)
        turns = [saved.turn for saved in log.turns() if saved.conversation == name and saved.reply != reply]
    earlier = {turn.message: turn.token_ids for turn in turns}  # a replay may have written one again
    assert [ids in request.prompt for ids in earlier.values()] == [True, True]


def test_a_replica_that_was_frozen_and_fenced_changes_nothing_when_it_wakes(
    paced: MendedStack, wendy: Client, paced_log: Records
) -> None:
    @contextlib.contextmanager
    def frozen() -> Iterator[None]:
        paced.freeze(REPLICA)
        try:
            yield
            paced.until(lambda: sum(r.state is State.RESUMING for r in paced_log.replies().values()) >= RUNNING)
        finally:
            paced.thaw(REPLICA)

    check(paced, wendy, ride(paced, wendy, "frozen", frozen()))
