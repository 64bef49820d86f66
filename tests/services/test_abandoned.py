"""What becomes of a reply when its client goes: it ends soon, goes on, or ends at once, as its client has asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from schemas.ids import ReplyId
from schemas.reply import Reply, State
from tests.services.client import Client, data_of, event_of, text_of
from tests.services.records import Records, balanced
from tests.services.running import MendedStack

ABANDON_AFTER_S = 2
RATE = 20
LONG = "again " * RATE * 20 * ABANDON_AFTER_S
SHORT = "again " * RATE * 3 * ABANDON_AFTER_S


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MendedStack]:
    """Two seconds of grace; LONG takes twenty times as long, SHORT three times."""
    env = {"LANEWAY_ABANDON_AFTER": str(ABANDON_AFTER_S), "LANEWAY_SCRIPTED_RATE": str(RATE)}
    with MendedStack(tmp_path_factory.mktemp("impatient"), env) as running:
        yield running


@pytest.fixture
def amy(impatient: MendedStack) -> Iterator[Client]:
    with Client(impatient) as client:
        yield client


@pytest.fixture
def log(impatient: MendedStack) -> Iterator[Records]:
    with Records(impatient.kafka) as records:
        yield records


def left(client: Client, conversation: str, text: str, **fields: str) -> ReplyId:
    """A reply whose only listener has heard its beginning and gone."""
    reply = client.say(conversation, text, **fields)
    with client.stream(reply) as frames:
        while event_of(next(frames)) != "token":
            pass
    return reply


def ended(stack: MendedStack, log: Records, reply: ReplyId) -> Reply:
    stack.until(lambda: log.replies()[reply].state.ended)
    return log.replies()[reply]


def test_a_reply_whose_client_has_vanished_is_stopped_and_keeps_what_it_had(
    impatient: MendedStack, amy: Client, log: Records
) -> None:
    reply = left(amy, "vanished", LONG)
    stopped = ended(impatient, log, reply)
    assert (stopped.state, stopped.reason) == (State.STOPPED, "abandoned")
    assert 0 < len(stopped.ids) < len(LONG.split())
    frames = amy.follow(reply, edge=1)
    assert (event_of(frames[-1]), data_of(frames[-1])["reason"]) == ("stopped", "abandoned")
    assert text_of(frames) == stopped.text
    impatient.until(lambda: [m["status"] for m in amy.messages("vanished")] == ["complete", "stopped"])
    impatient.until(lambda: balanced(log))


def test_one_that_nobody_ever_listened_to_is_too(impatient: MendedStack, amy: Client, log: Records) -> None:
    stopped = ended(impatient, log, amy.say("never-heard", LONG))
    assert (stopped.state, stopped.reason) == (State.STOPPED, "abandoned")
    assert stopped.ids


def test_one_that_is_to_continue_is_whole_when_its_client_comes_back(
    impatient: MendedStack, amy: Client, log: Records
) -> None:
    reply = left(amy, "continued", SHORT, on_disconnect="continue")
    assert ended(impatient, log, reply).state is State.FINISHED
    assert text_of(amy.follow(reply, edge=1)) == SHORT


def test_one_that_is_asked_for_now_and_then_goes_on(impatient: MendedStack, amy: Client) -> None:
    reply = amy.say("polled", SHORT)
    impatient.until(lambda: amy.reply(reply, edge=1)["state"] not in ("queued", "running"))
    found = amy.reply(reply)
    assert (found["state"], found["text"]) == ("finished", SHORT)


def test_the_listeners_of_a_killed_edge_have_gone(impatient: MendedStack, amy: Client, log: Records) -> None:
    reply = amy.say("edge-killed", LONG)
    with amy.stream(reply) as frames:
        while event_of(next(frames)) != "token":
            pass
        assert log.replies()[reply].listeners
        with impatient.without("edge-0"):
            stopped = ended(impatient, log, reply)
    assert (stopped.state, stopped.reason) == (State.STOPPED, "abandoned")
    assert stopped.listeners


def test_a_client_that_goes_on_at_the_other_edge_when_its_own_is_killed_hears_all(
    impatient: MendedStack, amy: Client
) -> None:
    reply, heard = amy.say("moved", SHORT), list[bytes]()
    with amy.stream(reply) as frames:
        heard += [next(frames) for _ in range(5)]
        with impatient.without("edge-0"):
            heard = amy.follow(reply, edge=1)
    assert (event_of(heard[-1]), text_of(heard)) == ("finished", SHORT)


def test_the_restart_of_its_supervisor_neither_spares_nor_hurries_it(
    impatient: MendedStack, amy: Client, log: Records
) -> None:
    gone, kept = left(amy, "gone", LONG), amy.say("kept", SHORT)
    with amy.stream(kept, edge=1) as frames:
        next(frames)
        impatient.restart("stages")
        heard = amy.follow(kept, edge=1)
    assert event_of(heard[-1]) == "finished"
    assert ended(impatient, log, gone).reason == "abandoned"
