"""The reply protocol by example: vectors that any implementation can be held to, the table of moves, the corners."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.reply import MOVES, Record, Reply, State, Verdict
from schemas.reply_records import TokenLogprob, Tokens
from tests.unit.schemas.reply_histories import REPLY, fold, record, record_of

VECTORS = Path(__file__).parent / "vectors"


def vectors() -> Iterator[Any]:
    for file in sorted(VECTORS.glob("*.json")):
        for vector in json.loads(file.read_text())["vectors"]:
            yield pytest.param(vector, id=f"{file.stem}: {vector['name']}")


@pytest.mark.parametrize("vector", list(vectors()))
def test_a_vector_folds_as_it_says(vector: dict[str, Any]) -> None:
    reply = fold(map(record_of, vector["records"]))
    found = {name: getattr(reply, name) for name in vector["expect"]}
    assert found == vector["expect"]


IN_STATE: dict[State, list[Record]] = {
    State.UNSEEN: [],
    State.QUEUED: [record("Accepted", checked=True)],
    State.REJECTED: [record("Rejected")],
    State.REDIRECTED: [record("Redirected")],
    State.TOLD: [record("UsageTold")],
}
IN_STATE[State.RUNNING] = [*IN_STATE[State.QUEUED], record("Started")]
IN_STATE[State.PREEMPTED] = [*IN_STATE[State.RUNNING], record("Preempted")]
IN_STATE[State.RESUMING] = [*IN_STATE[State.RUNNING], record("AttemptOpened", attempt=2)]
IN_STATE[State.FINISHED] = [*IN_STATE[State.RUNNING], record("Finished", count=0)]
IN_STATE[State.STOPPED] = [*IN_STATE[State.QUEUED], record("Stopped")]
IN_STATE[State.FLAGGED] = [*IN_STATE[State.QUEUED], record("Flagged", upto=0)]
IN_STATE[State.SHED] = [*IN_STATE[State.QUEUED], record("Shed")]
IN_STATE[State.FAILED] = [*IN_STATE[State.QUEUED], record("Failed")]

FITTING = {"Tokens": {"first": 1, "texts": ["x"]}, "Cleared": {"upto": 0}, "Flagged": {"upto": 0}}
PAIRS = [(state, kind) for state in State for kind in MOVES]


def fitting(reply: Reply, kind: str) -> Record:
    """A record of this kind that counts wherever the table lets it."""
    attempt = reply.attempt + (kind == "AttemptOpened")
    fields = FITTING.get(kind, {}) | ({"count": 0} if kind == "Finished" else {})
    has_attempt = kind in ("Dispatched", "Started", "Tokens", "Preempted", "AttemptOpened", "Finished")
    return record(kind, **fields, **({"attempt": attempt} if has_attempt else {}))


@pytest.mark.parametrize(("state", "kind"), PAIRS, ids=lambda value: getattr(value, "__name__", value))
def test_a_record_moves_a_reply_as_the_table_says_and_not_at_all_otherwise(state: State, kind: type[Record]) -> None:
    reply = fold(IN_STATE[state])
    assert reply.state is state
    verdict = reply.apply(99, fitting(reply, kind.__name__))
    assert reply.state is MOVES[kind].get(state, state)
    assert (verdict is Verdict.COUNTED) == (state in MOVES[kind])


def test_a_verdict_says_why_a_record_did_not_count() -> None:
    reply = fold([record("Accepted"), record("Started"), record("Tokens", first=1, texts=["x", "y"])])
    assert reply.apply(9, record("Tokens", first=2, texts=["y"])) is Verdict.REPEAT
    assert reply.apply(9, record("Tokens", first=4, texts=["z"])) is Verdict.GAP
    assert reply.apply(9, record("Tokens", first=3, texts=["z"], incarnation="b")) is Verdict.FOREIGN
    assert reply.apply(9, record("Tokens", first=3, texts=["z"], attempt=2)) is Verdict.STALE
    assert reply.apply(9, record("Shed")) is Verdict.VOID
    assert reply.apply(9, record("Failed")) is Verdict.COUNTED
    assert reply.apply(9, record("Failed")) is Verdict.ENDED


def test_those_who_were_addressed_or_started_are_remembered_once_each() -> None:
    by_a, by_b = {"attempt": 1, "incarnation": "a"}, {"attempt": 2, "incarnation": "b"}
    reply = fold([record("Accepted"), record("Dispatched", **by_a), record("Started", **by_a)])
    reply.apply(3, record("AttemptOpened", attempt=2))
    reply.apply(4, record("Started", **by_b))
    assert reply.addressees == [(1, "main-0", "a"), (2, "main-0", "b")]


def test_a_listener_that_came_again_after_a_look_keeps_the_reply() -> None:
    reply = fold([record("Accepted"), record("ListenerAttached"), record("ListenerDetached")])
    assert reply.listeners == set()
    reply.apply(7, record("ListenerAttached", stream="s2"))
    assert reply.apply(8, record("Stopped", by="abandoned", seen=6)) is Verdict.VOID
    assert reply.apply(9, record("Stopped", by="abandoned", seen=7)) is Verdict.COUNTED


def test_an_overlapping_record_gives_only_what_is_new() -> None:
    reply = fold([record("Accepted"), record("Started"), record("Tokens", first=1, texts=["a", "b"])])
    reply.apply(3, record("Tokens", first=1, texts=["A", "B", "c"]))
    assert (reply.text, reply.last, len(reply.ids)) == ("abc", 3, 3)


def test_clearing_ahead_of_the_tokens_shows_only_what_is_there() -> None:
    reply = fold([record("Accepted", checked=True), record("Started"), record("Cleared", upto=5)])
    assert reply.last == 0
    reply.apply(3, record("Tokens", first=1, texts=["a"]))
    assert (reply.text, reply.last) == ("a", 1)


CHECKED = [record("Accepted", checked=True), record("Started"), record("Tokens", first=1, texts=["a", "b"])]


def test_a_checked_reply_that_has_finished_waits_for_its_clearance_and_takes_no_fence() -> None:
    reply = fold([*CHECKED, record("Finished", count=2)])
    assert reply.apply(4, record("AttemptOpened", attempt=2)) is Verdict.VOID
    assert (reply.state, reply.attempt, reply.end_id) == (State.RUNNING, 1, None)
    reply.apply(5, record("Cleared", upto=2))
    assert (reply.state, reply.text, reply.end_id, reply.reason) == (State.FINISHED, "ab", 3, "stop")


@pytest.mark.parametrize(
    "end", [record("Stopped"), record("Failed"), record("Flagged", upto=0)], ids=lambda end: type(end).__name__
)
def test_every_end_of_a_checked_reply_keeps_only_what_was_cleared(end: Record) -> None:
    reply = fold([*CHECKED, record("Cleared", upto=1), end])
    assert (reply.text, reply.texts, len(reply.ids), reply.end_id) == ("a", ["a"], 1, 2)


def test_a_token_record_without_a_text_for_each_id_cannot_be_made() -> None:
    with pytest.raises(ValueError, match=r"Tokens\(first=1\) has 4 id bytes for 2 texts"):
        record("Tokens", first=1, texts=["a", "b"], ids=b"\0" * 4)
    assert Reply(REPLY).end_id is None


def test_log_probabilities_are_kept_by_the_number_of_their_token_and_end_with_what_is_shown() -> None:
    first, second, third = (TokenLogprob(text, -0.5, ()) for text in (b"x", b"y", b"z"))
    reply = fold([record("Accepted", checked=True), record("Started")])
    tokens = record("Tokens", first=1, texts=["x", "y"])
    assert isinstance(tokens, Tokens)
    reply.apply(2, replace(tokens, logprobs=(first, second)))
    reply.apply(3, replace(tokens, first=2, logprobs=(second, third)))
    assert reply.logprobs == {1: first, 2: second, 3: third}
    reply.apply(4, record("Flagged", upto=2))
    assert reply.logprobs == {1: first, 2: second}
