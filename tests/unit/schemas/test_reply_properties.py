"""The reply protocol's invariants: whatever the log holds, every reader tells the same story."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import Codec
from schemas.ids import Incarnation
from schemas.reply import Record, Reply, Verdict
from tests.unit.schemas.reply_histories import (
    REPLY,
    any_history,
    any_record,
    clean_history,
    fold,
    noisy_history,
    outcome,
)
from topics import catalog
from topics.log import Place
from topics.memory import MemoryLog
from topics.outputs import Encoder, Routes, reply_of_key

CODEC = Codec()
SIZES = catalog.Sizes(replies=1)


@given(clean_history())
def test_every_record_of_a_clean_history_counts(history: list[Record]) -> None:
    reply, verdicts = Reply(REPLY), []
    for offset, each in enumerate(history):
        verdicts.append(reply.apply(offset, each))
    assert set(verdicts[:-1]) <= {Verdict.COUNTED}
    assert verdicts[-1] in (Verdict.COUNTED, Verdict.ENDED)
    written = [text for each in history for text in getattr(each, "texts", ())]
    assert reply.texts == written[: len(reply.texts) if reply.state.ended else None]


@given(noisy_history())
def test_late_repeated_and_foreign_records_change_neither_text_nor_end(
    histories: tuple[list[Record], list[Record]],
) -> None:
    clean, noisy = histories
    assert outcome(fold(noisy)) == outcome(fold(clean))
    assert not fold(noisy).gap


@pytest.mark.parametrize("kept", [copy.deepcopy, lambda reply: pickle.loads(pickle.dumps(reply))])
@given(history=any_history(), place=st.integers(0, 30))
def test_a_fold_goes_on_from_a_saved_state(kept: Callable[[Reply], Reply], history: list[Record], place: int) -> None:
    reply = kept(fold(history[:place]))
    for offset, each in list(enumerate(history))[place:]:
        reply.apply(offset, each)
    assert reply == fold(history)


@given(any_history())
def test_a_saved_state_stands_still_while_the_fold_goes_on(history: list[Record]) -> None:
    reply = fold(history[:5])
    saved = copy.deepcopy(reply)
    for offset, each in enumerate(history):
        reply.apply(offset, each)
    assert saved == fold(history[:5])


@given(any_history(), any_record())
def test_nothing_follows_an_end(history: list[Record], late: Record) -> None:
    reply = fold(history)
    ended = copy.deepcopy(reply) if reply.state.ended else None
    reply.apply(99, late)
    assert ended is None or reply == ended
    assert reply.state.ended == (reply.end is not None) == (reply.end_id is not None)


@given(any_history())
def test_the_last_token_shown_never_goes_back(history: list[Record]) -> None:
    reply, shown = Reply(REPLY), ""
    for offset, each in enumerate(history):
        reply.apply(offset, each)
        assert reply.text.startswith(shown)
        assert reply.last >= len(shown)
        shown = reply.text


@given(any_history(), any_record())
def test_a_record_that_does_not_count_changes_nothing_but_the_gap(history: list[Record], each: Record) -> None:
    reply, before = fold(history), fold(history)
    verdict = reply.apply(99, each)
    before.gap_attempt = reply.gap_attempt
    assert verdict.name == "COUNTED" or reply == before


@given(any_history(), any_record())
def test_who_does_not_own_an_attempt_changes_nothing(history: list[Record], each: Record) -> None:
    reply, before = fold(history), fold(history)
    owned = type(each).__name__ in ("Tokens", "Preempted", "Finished")
    if owned and getattr(each, "incarnation", None) != reply.owner:
        reply.apply(99, each)
    assert reply == before


@given(any_history(), st.integers(0, 30))
def test_a_compacted_log_with_a_restarted_writer_folds_the_same(history: list[Record], restart: int) -> None:
    log = MemoryLog({catalog.REPLIES: 1}, clock=lambda: 0)
    producer, routes = log.producer(), Routes(SIZES)
    for writer, part in (("w-1", history[:restart]), ("w-2", history[restart:])):
        encoder = Encoder(CODEC, SIZES, Incarnation(writer))
        for each in part:
            producer.send(encoder.append(routes.reply(REPLY, each)))
    before = read_back(log)
    log.compact(catalog.REPLIES)
    assert before == read_back(log) == fold(history)


def read_back(log: MemoryLog) -> Reply:
    reader, reply = log.reader(), Reply(REPLY)
    reader.add(Place(catalog.REPLIES, 0), 0)
    for record in reader.poll(1000, 0):
        assert reply_of_key(record.key) == REPLY
        reply.apply(record.offset, CODEC.decode(record.value))
    return reply
