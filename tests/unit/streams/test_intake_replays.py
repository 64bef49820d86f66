"""Intake is a function of its log: stopped anywhere and restored from its changelog, it decides the same again."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.events import HistoryLoaded, MessagePosted
from schemas.reply_records import Accepted, Rejected, UsageTold
from schemas.tokenizer import ChatTokenizer
from streams.active import KEPT_IDLE_MS, MOST_HELD_BYTES
from streams.stage import Message
from tests.unit.streams.intakes import CODEC, PLACE, Changelog, Script, Written, encoded, keep, restored
from tests.unit.streams.staged import folded
from topics.catalog import REPLIES
from topics.outputs import Output

ELAPSED = st.sampled_from((0, 1, 1_500, 2_500, KEPT_IDLE_MS // 2, KEPT_IDLE_MS))
TALK = ("post", "post", "load", "load", "settle", "tick")


def logs(*actions: str) -> st.SearchStrategy[list[tuple[int, str, int, int]]]:
    action = st.tuples(ELAPSED, st.sampled_from(actions), st.integers(0, 2), st.integers(0, 2))
    return st.lists(action, min_size=4, max_size=30)


LOGS = logs(*TALK, "branch", "again", "rename", "delete", "plans", "limit", "usage")
# So little that conversations push each other out.
SMALL = 1_500
ROOMS = st.sampled_from((0, SMALL, MOST_HELD_BYTES))


def outputs(written: list[Written]) -> list[Output]:
    return [Output(place, key, CODEC.decode(value)) for place, key, value in written]


def rerun(script: Script, cut: int, commits: int) -> list[list[Written]]:
    """What follows `cut` from the state of that moment, which was committed every `commits` records and at the cut."""
    changelog: Changelog = {}
    before = restored(script.tokenizer, {}, script.room)
    for message in script.log[:cut]:
        before.apply(message)
        if message.offset % commits == 0:
            keep(changelog, before.changes())
    keep(changelog, before.changes())
    after = restored(script.tokenizer, changelog, script.room)
    return [encoded(after.apply(message)) for message in script.log[cut:]]


@settings(max_examples=80)
@given(actions=LOGS, at=st.floats(0, 1), commits=st.integers(1, 5), room=ROOMS)
def test_a_replay_from_any_cut_says_byte_for_byte_what_the_unbroken_run_said(
    tokenizer: ChatTokenizer, actions: list[tuple[int, str, int, int]], at: float, commits: int, room: int
) -> None:
    script = Script(tokenizer, room=room)
    script.run(actions)
    cut = round(at * len(script.log))
    assert rerun(script, cut, commits) == script.outputs[cut:]


@settings(max_examples=30)
@given(actions=LOGS, committed=st.floats(0, 1), crashed=st.floats(0, 1))
def test_records_that_were_answered_before_the_crash_are_answered_again_without_effect(
    tokenizer: ChatTokenizer, actions: list[tuple[int, str, int, int]], committed: float, crashed: float
) -> None:
    script = Script(tokenizer, room=SMALL)
    script.run(actions)
    cut, crash = sorted((round(committed * len(script.log)), round(crashed * len(script.log))))
    again = [*script.outputs[:crash], *rerun(script, cut, 3)]
    once = folded(outputs([written for step in script.outputs for written in step]))
    assert folded(outputs([written for step in again for written in step])) == once


@settings(max_examples=50)
@given(actions=LOGS, room=ROOMS, now=st.sampled_from(("down", "slow", "empty", "as it was")))
def test_a_replay_says_the_same_whatever_has_become_of_the_store(
    tokenizer: ChatTokenizer, actions: list[tuple[int, str, int, int]], room: int, now: str
) -> None:
    script = Script(tokenizer, room=room)
    script.run(actions)
    stage = restored(tokenizer, {}, room)
    told = [stage.apply(message) for message in script.log]
    assert [encoded(decision) for decision in told] == script.outputs
    late = [answer_of(script, wanted, now) for decision in told for wanted in decision.wanted]
    said = [output for decision in told for output in encoded(decision)]
    for n, event in enumerate([] if now == "slow" else late, len(script.log)):
        said += encoded(stage.apply(Message(PLACE, n, script.now, b"", event)))
    first = [written for step in script.outputs for written in step]
    ends = {reply: seen.accepted for reply, seen in folded(outputs(first)).items()}
    assert {reply: seen.accepted for reply, seen in folded(outputs(said)).items() if reply in ends} == ends


def answer_of(script: Script, wanted: Any, now: str) -> HistoryLoaded:
    """What a store that is asked again appends behind all that was recorded."""
    if now == "as it was":
        script.wanted[wanted.user, wanted.conversation] = wanted
        return script.history(wanted.user, wanted.conversation)
    found = wanted.leaf is None
    return HistoryLoaded(
        wanted.user, wanted.conversation, now == "empty", (), (), wanted.leaf, found, deleted_ms=wanted.deleted_ms
    )


@settings(max_examples=50)
@given(actions=logs(*TALK, "branch", "again"), room=ROOMS)
def test_every_client_key_has_exactly_one_accepted_reply(
    tokenizer: ChatTokenizer, actions: list[tuple[int, str, int, int]], room: int
) -> None:
    script = Script(tokenizer, room=room)
    script.run(actions)
    said = outputs([written for step in script.outputs for written in step if written[0].topic == REPLIES])
    keys = [
        (message.user, message.conversation, message.client_key)
        for output in said
        if isinstance(output.event, Accepted) and (message := script.posted[output.key])
    ]
    assert len(keys) == len(set(keys))
    assert len({output.key for output in said}) == len(said)


def test_the_script_reaches_what_it_is_there_for(tokenizer: ChatTokenizer) -> None:
    script = Script(tokenizer)
    post, settle, load = ("post", 0, 0), ("settle", 0, 0), ("load", 0, 1)
    script.run([(0, *a) for a in (post, load, post, settle)] + [(KEPT_IDLE_MS, "tick", 0, 0), (1, *post), (1, *load)])
    told = [type(output.event).__name__ for step in script.outputs for output in outputs(step)]
    assert told == ["Accepted", "GenerateRequested", "TurnSaved", "Redirected", "Redirected"]
    assert sum(isinstance(message.event, MessagePosted) for message in script.log) == 3


def test_the_script_reaches_limits_too(tokenizer: ChatTokenizer) -> None:
    script = Script(tokenizer)
    posts = [(0, "post", where, 0) for where in (0, 2)]
    loads = [(0, "load", where, 1) for where in (0, 2)]
    script.run([(0, "plans", 0, 0), *posts, *loads, (0, "usage", 0, 0), (0, "settle", 0, 0), (0, "usage", 0, 0)])
    said = [output.event for step in script.outputs for output in outputs(step)]
    assert [event.reason for event in said if isinstance(event, Rejected)] == ["quota"]
    before, after = (event.balances[0] for event in said if isinstance(event, UsageTold))
    assert (before.used, before.reserved > 0, after.used, after.reserved) == (0, True, 6, 0)
