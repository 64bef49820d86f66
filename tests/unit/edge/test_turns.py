"""Whose message goes next to intake: a user waits for his own, never for another's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from edge import turns
from edge.errors import OverQuota
from edge.turns import AT_ONCE_BYTES, Turns
from schemas.ids import UserId

LONG = 120_000


class Intake:
    """Messages that are on their way until a test lets them be answered; `sent` is all that have come so far."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.sent: list[str] = []
        self.on_the_way: dict[str, asyncio.Event] = {}
        self.most = 0
        self._sizes: dict[str, int] = {}

    async def post(self, name: str, size: int = LONG, user: str = "alice", patience_s: float = 1e6) -> None:
        async with self.turns.turn(UserId(user), size, patience_s):
            answered = self.on_the_way[name] = asyncio.Event()
            self.sent.append(name)
            self._sizes[name] = size
            self.most = max(self.most, sum(self._sizes[name] for name in self.on_the_way))
            try:
                await answered.wait()
            finally:
                del self.on_the_way[name]

    def posting(self, name: str, size: int = LONG, user: str = "alice") -> asyncio.Task[None]:
        return asyncio.create_task(self.post(name, size, user))

    async def answer_all(self) -> None:
        await settled()
        while self.on_the_way:
            for answered in list(self.on_the_way.values()):
                answered.set()
            await settled()


async def settled() -> None:
    """All that can go on without waiting has done so."""
    for _ in range(10):
        await asyncio.sleep(0)


def run(test: Callable[[Intake], Awaitable[None]]) -> None:
    async def ran() -> None:
        intake = Intake()
        await test(intake)
        assert not intake.turns._lines, "nothing is kept of who has nothing on his way"

    asyncio.run(ran())


def test_of_five_hundred_long_texts_of_a_user_one_at_a_time_is_before_intake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST_WAITING_BYTES", 500 * LONG)

    async def test(intake: Intake) -> None:
        posts = [intake.posting(str(n)) for n in range(500)]
        await intake.answer_all()
        await asyncio.gather(*posts)
        assert intake.most == LONG
        assert intake.sent == [str(n) for n in range(500)]

    run(test)


def test_nobody_waits_for_another_users(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(intake: Intake) -> None:
        posts = [intake.posting(f"long-{n}") for n in range(3)]
        await settled()
        posts.append(intake.posting("bobs", user="bob"))
        await settled()
        assert intake.sent == ["long-0", "bobs"]
        await intake.answer_all()
        await asyncio.gather(*posts)

    run(test)


def test_ordinary_messages_do_not_wait() -> None:
    async def test(intake: Intake) -> None:
        posts = [intake.posting(str(n), AT_ONCE_BYTES // 300) for n in range(300)]
        await settled()
        assert len(intake.on_the_way) == 300
        await intake.answer_all()
        await asyncio.gather(*posts)

    run(test)


def test_one_that_has_waited_too_long_or_behind_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST_WAITING_BYTES", LONG)

    async def test(intake: Intake) -> None:
        posts = [intake.posting("first")]
        await settled()
        with pytest.raises(OverQuota, match="has waited for 0 s"):
            await intake.post("impatient", patience_s=0)
        posts.append(intake.posting("second"))
        await settled()
        with pytest.raises(OverQuota, match=f"more than {LONG} bytes"):
            await intake.post("one too many", 1)
        await intake.answer_all()
        await asyncio.gather(*posts)
        assert intake.sent == ["first", "second"]

    run(test)


@pytest.mark.parametrize("its_turn_has_come", [False, True])
def test_the_turn_of_one_that_has_gone_is_the_next_ones(its_turn_has_come: bool) -> None:
    async def test(intake: Intake) -> None:
        posts = [intake.posting(name) for name in ("first", "gone", "last")]
        await settled()
        if its_turn_has_come:
            intake.on_the_way["first"].set()
            await asyncio.sleep(0)
        posts[1].cancel()
        await intake.answer_all()
        await asyncio.gather(*posts, return_exceptions=True)
        assert intake.sent == ["first", "last"]

    run(test)
