"""The checker finds every fault that it is for: a history that kept all promises, spoilt in one place at a time."""

from dataclasses import replace
from typing import Any

import pytest

from schemas import reply_records as r
from schemas.events import DeadLettered, Origin, pack_ids
from tests.checker.history import Entry, Request, Stream, Undisturbed
from tests.checker.rules import check
from tests.unit.checker.histories import (
    LATE_MS,
    LIFE,
    PAID,
    POSTS,
    REPEAT,
    REPLY,
    RESUME,
    SAID,
    broken,
    clean,
    with_entries,
    with_events,
    with_life,
)
from tests.unit.streams.staged import T0, accepted
from topics.catalog import DEAD_LETTERS, REPLIES, TURNS, USAGE
from topics.log import Place


def test_a_history_that_kept_all_promises_passes() -> None:
    assert check(clean()) == []


def test_a_reply_without_an_end_is_found_with_its_offset() -> None:
    history = with_life(*LIFE[:11])
    found = [violation for violation in check(history) if violation.rule == "end"]
    assert [(violation.reply, violation.offsets) for violation in found] == [(REPLY, (0,))]


def test_an_end_past_the_deadline_is_found() -> None:
    late = with_entries(REPLIES, lambda found: [found[0], *(replace(entry, at_ms=LATE_MS) for entry in found[1:])])
    assert broken(late) == {"deadline"}
    assert broken(with_life(*LIFE, at_ms=LATE_MS)) == set(), "nobody can end what is not accepted yet"


@pytest.mark.parametrize("without", range(3))
def test_a_message_without_an_answer_is_found(without: int) -> None:
    reply = POSTS[without].reply
    assert "answer" in broken(with_life(*(keyed for keyed in LIFE if keyed[0] != reply)))


def test_two_replies_of_one_key_are_found() -> None:
    twice = [*LIFE[:1], (REPEAT, accepted(REPEAT)), *LIFE[2:], (REPEAT, r.Failed("deadline"))]
    assert "one reply per key" in broken(with_life(*twice))


def test_a_redirection_to_another_reply_is_found() -> None:
    elsewhere = [*LIFE[:1], (REPEAT, r.Redirected(POSTS[2].reply)), *LIFE[2:]]
    assert broken(with_life(*elsewhere)) == {"redirection"}


def test_a_text_that_an_undisturbed_run_does_not_have_is_found() -> None:
    key = POSTS[0].user, POSTS[0].conversation, "k"
    for whole in ("abce", "abcde", "abc"):
        undisturbed = {key: Undisturbed(tuple(map(ord, whole)), tuple(whole), "stop")}
        assert broken(replace(clean(), undisturbed=undisturbed)) == {"undisturbed"}


def test_a_reply_that_was_stopped_may_be_shorter_than_the_undisturbed_one() -> None:
    stopped = [(REPLY, r.Stopped("user")) if keyed == LIFE[11] else keyed for keyed in LIFE]
    assert "undisturbed" not in broken(with_life(*stopped))


def test_usage_that_is_missing_or_there_twice_is_found() -> None:
    assert broken(with_entries(USAGE, lambda found: [])) == {"usage"}
    assert broken(with_entries(USAGE, lambda found: found * 2)) == {"usage"}


@pytest.mark.parametrize(
    "wrong", [{"completion_tokens": 3}, {"prompt_tokens": 4}, {"state": "failed"}, {"attempts": 1}, {"reply": REPEAT}]
)
def test_usage_that_says_another_thing_than_the_log_is_found(wrong: dict[str, Any]) -> None:
    assert broken(with_events(USAGE, lambda usage: replace(usage, **wrong))) == {"usage"}


@pytest.mark.parametrize("wrong", [{"text": "abc"}, {"token_ids": b"abcd"}, {"status": "stopped"}, {"role": "user"}])
def test_a_turn_that_says_another_thing_than_the_log_is_found(wrong: dict[str, Any]) -> None:
    spoilt = with_events(TURNS, lambda saved: replace(saved, turn=replace(saved.turn, **wrong)))
    assert "turn" in broken(spoilt)


def test_a_turn_that_is_missing_is_found_and_a_repeat_is_none() -> None:
    assert broken(with_entries(TURNS, lambda found: [found[0]])) == {"turn"}
    assert broken(with_entries(TURNS, lambda found: [found[1]])) == {"turn"}
    assert broken(with_entries(TURNS, lambda found: found * 2)) == set()


def test_a_store_that_lost_or_mixed_up_turns_is_found() -> None:
    history = clean()
    [(key, turns)] = history.stored.items()
    for wrong in (turns[:1], turns[::-1], turns * 2, (*turns[:1], ("assistant", "abc", "complete"))):
        assert broken(replace(history, stored={key: wrong})) == {"store"}


@pytest.mark.parametrize(
    "fault",
    [
        (b'"text":"a"', b'"text":"b"'),
        (b"id: 1\n", b"id: 2\n"),
        (b"id: 0\n", b""),
        (b"event: queued", b"event: dropped"),
        (b'"reply":"r', b'"reply":"x'),
        (b'{"text":"b"}', b'{"text"'),
    ],
)
def test_a_stream_that_differs_from_the_log_is_found(fault: tuple[bytes, bytes]) -> None:
    history = clean()
    spoilt = replace(history.streams[0], body=history.streams[0].body.replace(*fault, 1))
    assert spoilt != history.streams[0]
    assert broken(replace(history, streams=(spoilt, *history.streams[1:]))) & {"event", "stream", "text"}


@pytest.mark.parametrize(
    "fault", [(b"event: finished", b"event: stopped"), (b'"completion_tokens":4', b'"completion_tokens":3')]
)
def test_an_end_that_the_log_does_not_have_is_found(fault: tuple[bytes, bytes]) -> None:
    first, second = clean().streams
    assert broken(replace(clean(), streams=(first, replace(second, body=second.body.replace(*fault))))) == {"event"}


def test_a_token_that_is_sent_twice_or_left_out_between_two_streams_is_found() -> None:
    first, second = clean().streams
    for after in (1, 3):
        assert "cursor" in broken(replace(clean(), streams=(first, replace(second, after=after))))


def test_a_stream_that_the_server_ends_early_is_found() -> None:
    first, second = clean().streams
    early = replace(second, body=second.body[: second.body.index(b"event: finished")])
    assert broken(replace(clean(), streams=(first, early))) == {"stream"}
    assert broken(replace(clean(), streams=(first, replace(early, body=early.body + b"retry: 500\n")))) == set()


def test_a_stream_of_a_refused_message_is_found() -> None:
    assert broken(replace(clean(), streams=(Stream("c", POSTS[2].reply, None, b"", True),))) == {"stream"}


@pytest.mark.parametrize(("answers", "lost"), [((), False), (("202", "503"), False), (("202",), True)])
def test_a_request_with_no_answer_or_two_is_found(answers: tuple[str, ...], lost: bool) -> None:
    assert broken(replace(clean(), requests=(Request("c", "post", answers, lost),))) == {"request"}


@pytest.mark.parametrize(
    ("topic", "wrong"),
    [
        (PAID, {"prompt": pack_ids(map(ord, "<as>"))}),
        (RESUME, {"prompt": pack_ids(map(ord, "<ask"))}),
        (RESUME, {"accepted": pack_ids(map(ord, "ax"))}),
        (RESUME, {"reply": POSTS[2].reply}),
    ],
)
def test_a_replica_that_is_asked_another_thing_is_found(topic: str, wrong: dict[str, Any]) -> None:
    assert broken(with_events(topic, lambda request: replace(request, **wrong))) == {"prompt"}


def test_what_is_left_is_found() -> None:
    [violation] = check(replace(clean(), left={"blocks of replica main/0": 2, "streams": 0}))
    assert (violation.rule, violation.found) == ("left", "2 blocks of replica main/0")


def test_a_record_that_was_put_aside_is_found() -> None:
    letter = DeadLettered(Origin(REPLIES, 0, 1), "settlement", "could not be decided", None, None)
    history = replace(clean(), entries=(*clean().entries, Entry(Place(DEAD_LETTERS, 0), 0, T0, b"", letter)))
    assert broken(history) == {"dead letter"}


def test_the_turn_of_a_reply_is_that_of_its_prefix_before_the_fence() -> None:
    """The two tokens that the lost replica wrote after the fence are in no turn and no stream."""
    assert SAID.turn.text == "abcd"
    assert "turn" in broken(with_life(*(keyed for keyed in LIFE if keyed[1] != r.AttemptOpened(2))))
