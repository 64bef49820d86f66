"""How replies end without finishing: stopped by their user, late, or shed; with and without a replica."""

from __future__ import annotations

from schemas.reply import State
from tests.services.client import Client, data_of, event_of, id_of, ids_of, text_of
from tests.services.conftest import BACKLOG
from tests.services.records import Records, balanced
from tests.services.running import REPLICA, MendedStack

LONG = "again " * 200
ROOM = 9  # the replica's 8 and one more in its lane


def test_a_reply_stopped_while_it_waits_is_never_served(paced: MendedStack, wendy: Client, paced_log: Records) -> None:
    with paced.without(REPLICA):
        reply = wendy.say("stopped-queued", LONG)
        assert wendy.stop(reply, edge=1) == {"state": "stopped"}
    frames = wendy.follow(reply)
    assert (ids_of(frames), event_of(frames[-1])) == ([0, 1], "stopped")
    assert text_of(wendy.follow(wendy.say("served-after", "hello"))) == "hello"
    assert paced_log.replies()[reply].ids == []
    paced.until(lambda: [m["status"] for m in wendy.messages("stopped-queued")] == ["complete", "stopped"])


def test_a_reply_stopped_from_the_other_edge_keeps_the_tokens_of_the_log(
    paced: MendedStack, wendy: Client, paced_log: Records
) -> None:
    reply = wendy.say("stopped-running", LONG)
    with wendy.stream(reply) as stream:
        frames = [next(stream) for _ in range(12)]
        assert wendy.stop(reply, edge=1) == {"state": "stopped"}
        frames += stream
    assert event_of(frames[-1]) == "stopped"
    paced.until(lambda: len(wendy.messages("stopped-running")) == 2)
    paced.until(lambda: balanced(paced_log))
    stored = wendy.messages("stopped-running")[1]
    [usage] = [usage for usage in paced_log.usage() if usage.reply == reply]
    assert stored["text"] == text_of(frames) == paced_log.replies()[reply].text
    assert 9 < usage.completion_tokens == len(ids_of(frames)) - 2 < 200


def test_stopping_twice_or_after_the_end_changes_nothing(paced: MendedStack, wendy: Client) -> None:
    stopped = wendy.say("stopped-twice", LONG)
    assert [wendy.stop(stopped, edge) for edge in (0, 1, 0)] == [{"state": "stopped"}] * 3
    finished = wendy.say("stopped-late", "short")
    frames = wendy.follow(finished)
    assert [wendy.stop(finished, edge) for edge in (0, 1)] == [{"state": "finished"}] * 2
    assert wendy.follow(finished, edge=1) == frames
    assert event_of(frames[-1]) == "finished"


def test_a_conversation_goes_on_after_a_stop(paced: MendedStack, wendy: Client) -> None:
    reply = wendy.say("after-a-stop", LONG)
    wendy.stop(reply)
    assert text_of(wendy.follow(wendy.say("after-a-stop", "and now?"))) == "and now?"
    paced.until(lambda: len(wendy.messages("after-a-stop")) == 4)
    assert [m["status"] for m in wendy.messages("after-a-stop")] == ["complete", "stopped", "complete", "complete"]


def test_a_reply_past_its_deadline_fails_and_is_never_served(
    paced: MendedStack, wendy: Client, paced_log: Records
) -> None:
    with paced.without(REPLICA):
        reply = wendy.say("late", LONG, deadline_s=2)
        frames = wendy.follow(reply)
    assert (event_of(frames[-1]), data_of(frames[-1])["reason"]) == ("failed", "deadline")
    assert text_of(wendy.follow(wendy.say("in-time", "hello"))) == "hello"
    folded = paced_log.replies()[reply]
    assert (folded.state, folded.ids, folded.started) == (State.FAILED, [], None)


def test_a_running_reply_past_its_deadline_keeps_what_it_had(paced: MendedStack, wendy: Client) -> None:
    frames = wendy.follow(wendy.say("too-slow", "slow " * 400, deadline_s=1))
    assert (event_of(frames[-1]), data_of(frames[-1])["reason"]) == ("failed", "deadline")
    assert 0 < len(ids_of(frames)) - 2 < 400
    paced.until(lambda: len(wendy.messages("too-slow")) == 2)
    assert wendy.messages("too-slow")[1]["text"] == text_of(frames)


def test_a_reply_that_is_to_be_cancelled_ends_when_its_client_has_gone(
    paced: MendedStack, wendy: Client, paced_log: Records
) -> None:
    reply = wendy.say("cancelled", "word " * 1000, on_disconnect="cancel")
    with wendy.stream(reply) as stream:
        frames = [next(stream) for _ in range(5)]
    with wendy.stream(reply, edge=1, cursor=ids_of(frames)[-1]) as stream:  # in time: it had only changed its edge
        frames += [next(stream) for _ in range(5 * 50)]
    paced.until(lambda: paced_log.replies()[reply].state.ended)
    folded = paced_log.replies()[reply]
    assert (folded.state, folded.reason) == (State.STOPPED, "abandoned")
    assert len(ids_of(frames)) <= len(folded.ids) < 1000


def test_past_the_backlogs_limit_a_reply_is_shed_with_a_time_to_retry(paced: MendedStack, wendy: Client) -> None:
    with paced.without(REPLICA):
        replies = [wendy.say(f"shed-{n}", "crowded", edge=n % 2) for n in range(ROOM + BACKLOG + 3)]
        paced.until(lambda: any(wendy.reply(reply)["state"] == "shed" for reply in replies))
    frames = [wendy.follow(reply) for reply in replies]
    ends = [event_of(heard[-1]) for heard in frames]
    assert set(ends) == {"finished", "shed"}
    shed = frames[ends.index("shed")]
    assert data_of(shed[-1])["retry_after"] >= 1
    assert id_of(shed[-1]) == 1
    assert {text_of(heard) for heard in frames if event_of(heard[-1]) == "finished"} == {"crowded"}
