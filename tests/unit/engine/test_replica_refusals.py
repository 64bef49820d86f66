"""Requests that a replica cannot compute end alone, and harm nobody else's."""

import math
from typing import Any

import pytest

from engine.load import Requests
from schemas import reply_records as r
from schemas.events import Origin, Sampling, pack_ids
from schemas.tokenizer import ChatTokenizer, PromptTurn
from tests.unit.engine.replica_rig import ORIGIN, Rig, reply_id
from topics.catalog import DEAD_LETTERS, LARGEST_RECORD, REPLIES, lane_topic
from topics.log import Append, Place


@pytest.fixture
def rig(tiny_tokenizer: ChatTokenizer) -> Rig:
    return Rig(tiny_tokenizer)


def test_bytes_that_are_no_request_are_put_aside_and_their_reply_fails(rig: Rig) -> None:
    lane = Place(lane_topic("main", "paid"), 0)
    for key, value in ((reply_id(1).encode(), b"rubbish"), (b"no reply", b"rubbish"), (reply_id(1).encode(), None)):
        rig.log.producer().send(Append(lane, key, value))
    rig.assign(2)
    rig.run(4)
    assert (rig.of(1), rig.kinds(2)[-1]) == ([r.Failed("internal")], r.Finished)
    letters = [letter for _, letter in rig.events(DEAD_LETTERS)]
    assert [(letter.origin.offset, letter.value) for letter in letters] == [(0, b"rubbish"), (1, b"rubbish")]


@pytest.mark.parametrize(
    "fields",
    [
        {"sampling": Sampling(9, stop=("",))},
        {"sampling": Sampling(9, temperature=math.nan)},
        {"sampling": Sampling(9, repetition_penalty=0)},
        {"sampling": Sampling(9, presence_penalty=1e300)},
        {"sampling": Sampling(9, top_logprobs=-1)},
        {"sampling": Sampling(9, top_logprobs=50_000)},
        {"accepted": b"xyz"},
        {"accepted": pack_ids([9_999])},
        {"prompt": pack_ids([5, 9_999])},
        {"prompt": b""},
        {"tier": "platinum"},
    ],
    ids=[
        "empty stop",
        "no temperature",
        "no penalty",
        "high penalty",
        "no likeliest",
        "too many likeliest",
        "half an id",
        "unknown id",
        "unknown id asked",
        "no prompt",
        "no tier",
    ],
)
def test_a_request_that_cannot_be_started_fails_alone(rig: Rig, fields: dict[str, Any]) -> None:
    rig.assign(1, **fields)
    rig.assign(2)
    rig.run(4)
    assert (rig.of(1), rig.kinds(2)[-1]) == ([r.Failed("internal")], r.Finished)
    assert [letter.origin for _, letter in rig.events(DEAD_LETTERS)] == [ORIGIN]


@pytest.mark.parametrize("name", ["", "nonsense", "r00007-" + "0" * 32 + "-00000000"])
def test_a_request_of_no_reply_is_put_aside(rig: Rig, name: str) -> None:
    rig.assign(1, as_reply=name)
    rig.assign(1, as_reply=name, sampling=Sampling(rig.tokenizer.context))
    rig.assign(2)
    rig.run(4)
    assert {reply for reply, _ in rig.events(REPLIES)} == {reply_id(2)}
    assert (len(rig.events(DEAD_LETTERS)), rig.replica.requests) == (2, Requests(stopped=1, refused=2))


def test_a_request_from_nowhere_fails_with_a_letter_that_fits(rig: Rig) -> None:
    rig.assign(1, origin=Origin("x" * 1_000_000, 0, 7))
    rig.run()
    [(_, letter)] = rig.events(DEAD_LETTERS)
    assert (rig.of(1), letter.origin.topic) == ([r.Failed("internal")], "x" * 249)
    assert "which is no backlog of this pool" in letter.error and len(letter.error) < 1000


def test_bytes_too_many_for_a_letter_are_cut(rig: Rig) -> None:
    rig.log.producer().send(Append(Place(lane_topic("main", "paid"), 0), b"k", b"x" * LARGEST_RECORD))
    rig.run()
    [(_, letter)] = rig.events(DEAD_LETTERS)
    assert len(letter.value) < LARGEST_RECORD
    assert "bytes of the key and" in letter.error


def test_a_reply_that_could_outgrow_the_context_is_not_begun(rig: Rig) -> None:
    rig.assign(1, sampling=Sampling(rig.tokenizer.context))
    rig.run()
    [failed] = rig.of(1)
    prompt, context = (
        len(rig.tokenizer.prompt([PromptTurn("user", rig.tokenizer.encode("hey"))])),
        rig.tokenizer.context,
    )
    assert failed.reason.startswith(f"context_length_exceeded: a prompt of {prompt} and a reply of {context} tokens")
    assert rig.replica.idle


def test_a_reply_that_could_outgrow_the_cache_is_refused_with_the_numbers(tiny_tokenizer: ChatTokenizer) -> None:
    rig = Rig(tiny_tokenizer, blocks=5)
    rig.assign(1, sampling=Sampling(80))
    rig.assign(2, sampling=Sampling(10))
    rig.run_out()
    [failed] = rig.of(1)
    assert failed.reason.endswith("blocks of keys and values, and this replica has 5")
    assert rig.kinds(2)[-1] is r.Finished
