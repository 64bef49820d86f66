"""History passes on every turn of a batch with its offset, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.events import Tick, Turn, TurnSaved
from schemas.ids import ConversationId, MessageId, ReplyId, UserId
from streams.history import keep, turns_in
from topics.errors import Unavailable
from topics.store.contract import SavedAt
from topics.store.sqlite import SqliteStore

TURN = Turn(MessageId("u-1"), None, "user", "hello", b"", "tokenizer", "complete")
SAVED = TurnSaved(UserId("ada"), ConversationId("c1"), TURN, ReplyId("r-1"), "model", 1)


def test_turns_keep_their_offsets_and_repeats_are_the_stores_business() -> None:
    assert turns_in([(4, SAVED), (9, SAVED)]) == (SavedAt(4, SAVED), SavedAt(9, SAVED))


def test_events_of_other_types_are_passed_over() -> None:
    assert turns_in([(1, Tick()), (2, SAVED)]) == (SavedAt(2, SAVED),)


def test_a_store_that_cannot_save_stops_the_batch(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    keep([(1, SAVED)], store)
    store.close()
    with pytest.raises(Unavailable):
        keep([(2, SAVED)], store)
    keep([(3, Tick())], store)
