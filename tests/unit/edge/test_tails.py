"""Views are shared by their readers, outlive them for a while, and are bounded in number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from edge import tails
from edge.tails import Tails
from schemas.ids import Incarnation, ReplyId, mint_reply_id
from schemas.reply import Record
from tests.unit.edge.running_edge import CODEC, SIZES, finished, started, tokens
from tests.unit.edge.test_replies import accepted_for
from topics.catalog import REPLIES
from topics.memory import MemoryLog
from topics.outputs import Encoder, Routes
from topics.schemas import Decoder


class Cell:
    """A log in memory, and the tails of one edge over it."""

    def __init__(self) -> None:
        self.log = MemoryLog({REPLIES: SIZES.replies}, lambda: 1_000)
        self.tails = Tails(self.log, (0, 1), Decoder(self.log, CODEC), lambda: None)
        self._encoder = Encoder(CODEC, SIZES, Incarnation("w"))
        self._producer = self.log.producer()

    def write(self, reply: ReplyId, *records: Record) -> None:
        for record in records:
            self._producer.send(self._encoder.append(Routes(SIZES).reply(reply, record)))


@asynccontextmanager
async def running() -> AsyncIterator[Cell]:
    cell = Cell()
    cell.tails.start(lambda error: None)
    try:
        yield cell
    finally:
        await asyncio.to_thread(cell.tails.stop)
        cell.tails.close()


def in_cell(test: Callable[[Cell], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with running() as cell:
            await test(cell)

    asyncio.run(scenario())


def reply_id(number: int, partition: int = 0) -> ReplyId:
    return mint_reply_id(0, partition, f"{1_000:012x}7{number:019x}", b"key")


def test_readers_of_a_reply_share_a_view_that_outlives_them() -> None:
    async def test(cell: Cell) -> None:
        reply = reply_id(1)
        with cell.tails.following(reply) as first, cell.tails.reading(reply) as second:
            assert first is second
            cell.write(reply, accepted_for(reply), started())
            assert await first.until(lambda: first.view.seen, 20)
        cell.write(reply, tokens(1, "a"))
        with cell.tails.reading(reply) as later:
            assert later is first
            assert await later.until(lambda: later.view.newest_id == 1, 20)

    in_cell(test)


def test_a_view_of_a_reply_that_never_was_is_forgotten_at_once() -> None:
    async def test(cell: Cell) -> None:
        with cell.tails.reading(reply_id(1, partition=3)) as first:
            assert await first.until(lambda: first.live, 20)
        with cell.tails.reading(reply_id(1, partition=3)) as second:
            assert second is not first

    in_cell(test)


def test_idle_views_are_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "MOST_IDLE", 2)

    async def test(cell: Cell) -> None:
        views = {}
        for reply in (replies := [reply_id(n) for n in range(3)]):
            with cell.tails.following(reply) as shared:
                cell.write(reply, accepted_for(reply), started(), finished(0))
                assert await shared.until(lambda: shared.view.ended, 20)
                views[reply] = shared
        with cell.tails.reading(replies[2]) as kept, cell.tails.reading(replies[0]) as read_again:
            assert kept is views[replies[2]]
            assert read_again is not views[replies[0]]
            assert await read_again.until(lambda: read_again.view.ended, 20)
            assert read_again.view.frames == views[replies[0]].view.frames

    in_cell(test)


def test_a_wait_that_is_in_vain_says_so() -> None:
    async def test(cell: Cell) -> None:
        with cell.tails.following(reply_id(1)) as shared:
            assert not await shared.until(lambda: shared.view.seen, 0.01)

    in_cell(test)
