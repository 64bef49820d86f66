"""Whose fault it is: a client's error costs no replica anything, what a replica gives up costs no client a word."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.events import Sampling
from schemas.reply import State
from schemas.reply_records import AttemptOpened, Failed
from schemas.tokenizer import ChatTokenizer
from tests.flow.test_pipeline import TEXT, TOKENS, Pipeline
from tests.tiny_tokenizer import write_tokenizer
from tests.unit.streams.staged import accepted, posted, reply_id, request
from topics.catalog import DEAD_LETTERS, REPLIES, USAGE, generate_topic
from topics.log import Place
from topics.store.sqlite import SqliteStore

BACKLOG = Place(generate_topic("main", "paid"), 0)
BAD = {
    1: replace(request(1, prompt="a"), sampling=Sampling(10**6)),
    2: replace(request(2, prompt="a"), sampling=Sampling(9, temperature=math.nan)),
    3: request(3),
}
RUBBISH = 4


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with closing(SqliteStore(tmp_path / "store.sqlite")) as store:
        yield Pipeline(ChatTokenizer.load(write_tokenizer(tmp_path)), store)


def test_a_clients_error_opens_no_attempt_and_its_replica_goes_on_serving(pipeline: Pipeline) -> None:
    pipeline.start(0, "one")
    pipeline.settle()
    for n in (*BAD, RUBBISH):
        pipeline.write(pipeline.routes.reply(reply_id(n), accepted(reply_id(n))))
    pipeline.write(*map(pipeline.routes.generate, BAD.values()))
    pipeline.raw(BACKLOG, reply_id(RUBBISH).encode(), b"rubbish")
    good = pipeline.run(pipeline.post(posted(9, TEXT)), *map(reply_id, (*BAD, RUBBISH)))
    pipeline.settle()
    ends = [pipeline.replies()[reply_id(n)].end for n in (*BAD, RUBBISH)]
    assert [type(end) for end in ends] == [Failed] * len(ends)
    assert (good.state, good.text, good.owner) == (State.FINISHED, TEXT, "one")
    assert not any(isinstance(record, AttemptOpened) for record in pipeline.events(REPLIES))
    assert (len(pipeline.events(DEAD_LETTERS)), pipeline.replicas[0][0].load.dropped) == (3, ())


@pytest.mark.parametrize("begun", range(0, TOKENS, 3))
def test_what_is_handed_over_goes_on_elsewhere_word_for_word(pipeline: Pipeline, begun: int) -> None:
    for slot, name in enumerate(("one", "two")):
        pipeline.start(slot, name)
    pipeline.settle()
    reply = pipeline.post(posted(1, TEXT))
    first = pipeline.run(reply, tokens=begun)
    slot = 0 if first.owner in (None, "one") else 1
    leaving, beats = pipeline.replicas.pop(slot)
    leaving.drain()
    leaving.hand_over()
    beats.beat(leaving.load)
    whole = pipeline.run(reply)
    pipeline.settle()
    assert (whole.state, whole.text, whole.owner) == (State.FINISHED, TEXT, ("two", "one")[slot])
    assert [usage.completion_tokens for usage in pipeline.events(USAGE)] == [TOKENS]
