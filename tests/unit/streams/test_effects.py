"""What the shell answers: a continuation of the request that was named, or the reply's end; history that fits."""

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.events import ClientKey, GenerateRequested, HistoryLoaded, Origin, TurnSaved
from schemas.ids import MessageId
from schemas.reply_records import Failed
from streams.active import KEPT_IDLE_MS
from streams.bounds import LONGEST_NAME_BYTES, MOST_SYSTEM_BYTES, MOST_TURNS_BYTES
from streams.runtime.effects import Effects
from streams.runtime.requests import Requests
from streams.stage import ContinuationWanted, HistoryWanted
from tests.unit.streams.cells import CODEC, Cell
from tests.unit.streams.staged import SIZES, beat, posted, reply_id, request, turn
from topics.catalog import LARGEST_RECORD, REPLIES, TIERS, generate_topic
from topics.log import Place, Record
from topics.memory import MemoryReader
from topics.schemas import Decoder
from topics.store.contract import History
from topics.store.progress import Progress

PAID = generate_topic("main", "paid")
NOWHERE = [
    Origin("no.such.topic", 0, 0),
    Origin(REPLIES, 0, 0),
    Origin(generate_topic("other", "paid"), 0, 0),
    *(Origin(PAID, partition, 0) for partition in (1, -1, 2**63 - 1)),
    *(Origin(PAID, 0, offset) for offset in (3, 10**15, 2**63 - 1, -1, -2, -1001, -(2**63))),
]


def effects(cell: Cell, store: Any = None) -> Effects:
    return Effects(Requests(cell.log), store, Progress(cell.log, store), Decoder(cell.log, CODEC), cell.routes, 512)


@pytest.fixture
def cell() -> Cell:
    """Three records in the backlog: a request, another reply's, and an event that is no request."""
    cell = Cell(SIZES)
    cell.write(*(cell.routes.generate(request(n, prompt="ab")) for n in (1, 2)))
    cell.write(replace(cell.routes.generate(request(1)), event=beat()))
    return cell


def wanted(origin: Origin, accepted: bytes = b"\1\0\0\0") -> ContinuationWanted:
    return ContinuationWanted(reply_id(1), 2, origin, accepted)


def test_a_continuation_is_the_request_with_what_was_accepted(cell: Cell) -> None:
    output = effects(cell).perform(wanted(Origin(PAID, 0, 0)))
    again = replace(request(1, prompt="ab"), attempt=2, tier="resume", accepted=b"\1\0\0\0")
    assert (output.place.topic, output.event) == (generate_topic("main", "resume"), again)


@pytest.mark.parametrize("origin", [*NOWHERE, Origin(PAID, 0, 1), Origin(PAID, 0, 2)], ids=str)
def test_a_place_where_the_request_does_not_lie_ends_the_reply(cell: Cell, origin: Origin) -> None:
    output = effects(cell).perform(wanted(origin))
    assert (output.key, output.event) == (reply_id(1), Failed("request_lost"))


class Sipping(MemoryReader):
    """A broker that answers with a few records at a time."""

    def poll(self, limit: int, timeout_s: float) -> list[Record]:
        return super().poll(min(limit, 3), timeout_s)


def test_requests_that_lie_side_by_side_are_read_together(cell: Cell) -> None:
    readers = []
    cell.log.reader = lambda **_: readers.append(Sipping(cell.log, committed_only=False)) or readers[-1]  # type: ignore
    cell.write(*(cell.routes.generate(request(n)) for n in range(3, 40)))
    shell = effects(cell)
    shell.perform(replace(wanted(Origin(PAID, 0, 20)), reply=reply_id(20)))
    cell.log.delete_before(Place(PAID, 0), 39)
    told = [shell.perform(replace(wanted(Origin(PAID, 0, n)), reply=reply_id(n))).event for n in range(3, 40)]
    assert [event.reply for event in told] == [reply_id(n) for n in range(3, 40)]
    assert len(readers) == 1
    assert isinstance(shell.perform(wanted(Origin(PAID, 0, 99))).event, Failed)


def test_a_request_that_has_expired_ends_the_reply(cell: Cell) -> None:
    cell.log.delete_before(cell.routes.generate(request(1)).place, 1)
    assert effects(cell).perform(wanted(Origin(PAID, 0, 0))).event == Failed("request_lost")


@pytest.mark.parametrize("tier", TIERS)
def test_a_request_of_a_pool_that_is_none_or_too_large_to_go_on_ends_the_reply(cell: Cell, tier: str) -> None:
    place = cell.routes.generate(request(1, tier)).place
    end = cell.log.reader().end(place)
    cell.raw(place, b"", CODEC.encode(request(1, tier, pool="nowhere")))
    cell.raw(place, b"", CODEC.encode(request(1, tier)))
    assert effects(cell).perform(wanted(Origin(place.topic, 0, end))).event == Failed("request_lost")
    long = wanted(Origin(place.topic, 0, end + 1), b"\1\0\0\0" * 300_000)
    assert effects(cell).perform(long).event == Failed("request_lost")
    assert isinstance(effects(cell).perform(wanted(Origin(place.topic, 0, end + 1))).event, GenerateRequested)


def test_history_is_cut_to_what_a_record_holds(cell: Cell) -> None:
    turns = [turn("user", (1,), text="x" * (MOST_TURNS_BYTES // 3), message=f"m{n}") for n in range(9)]
    keys = tuple(ClientKey("k" * length, "hash", reply_id(1)) for length in (LONGEST_NAME_BYTES, LARGEST_RECORD))
    store = SimpleNamespace(identity=lambda: "", history=lambda *_: History(tuple(turns), keys))
    message = posted(1)
    loaded = effects(cell, store).perform(HistoryWanted(message.user, message.conversation)).event
    assert isinstance(loaded, HistoryLoaded) and loaded.available
    assert (loaded.turns, loaded.keys) == (tuple(turns[-2:]), keys[:1])


@pytest.mark.parametrize(("ago_ms", "available"), [(0, True), (KEPT_IDLE_MS, False)])
def test_a_store_that_lacks_what_intake_has_forgotten_is_not_believed(cell: Cell, ago_ms: int, available: bool) -> None:
    """Nobody has saved a turn that was said so long ago."""
    cell.now_ms = time.time_ns() // 1_000_000 - ago_ms
    message = posted(1)
    said = TurnSaved(message.user, message.conversation, turn("user", (1,)), message.reply, "tiny", cell.now_ms)
    cell.write(cell.routes.turn(said))
    store = SimpleNamespace(identity=lambda: "", history=lambda *_: History((), ()))
    loaded = effects(cell, store).perform(HistoryWanted(message.user, message.conversation)).event
    assert loaded.available == available


@pytest.mark.parametrize(("deleted_ms", "available"), [(0, True), (5, True), (6, False)])
def test_a_store_that_has_not_heard_of_a_deletion_is_not_believed(cell: Cell, deleted_ms: int, available: bool) -> None:
    store = SimpleNamespace(
        empty=lambda: False, history=lambda *_: History((), (), "x" * (MOST_SYSTEM_BYTES + 1)), deleted_ms=lambda *_: 5
    )
    message = posted(1)
    asked = HistoryWanted(message.user, message.conversation, MessageId("m"), deleted_ms)
    loaded = effects(cell, store).perform(asked).event
    assert (loaded.available, loaded.leaf, loaded.system) == (available, "m", "")
