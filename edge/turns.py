"""Whose messages are on their way to intake: of each user some bytes at once, the rest wait here for their turn.

Intake reads the texts of all users in one thread, a long one for a tenth of a second, so that who sends many of those
has to wait for himself alone. Ordinary messages in ordinary numbers never wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TypeAlias

from edge.errors import OverQuota
from schemas.ids import UserId

AT_ONCE_BYTES = 64 * 1024
MOST_WAITING_BYTES = 16 * 1024 * 1024

Waiting: TypeAlias = tuple[int, asyncio.Future[None]]


@dataclass(slots=True)
class Line:
    """One user's: bytes on their way, and the sizes of those that wait, the first first."""

    on_the_way: int = 0
    waiting: deque[Waiting] = field(default_factory=deque)

    def has_room(self, size: int) -> bool:
        """One that is alone may have any size."""
        return not self.on_the_way or self.on_the_way + size <= AT_ONCE_BYTES

    def move_up(self) -> None:
        while self.waiting and self.has_room(self.waiting[0][0]):
            size, turn = self.waiting.popleft()
            if not turn.done():  # else it is giving up
                self.on_the_way += size
                turn.set_result(None)


class Turns:
    def __init__(self) -> None:
        self._lines: dict[UserId, Line] = {}

    @contextlib.asynccontextmanager
    async def turn(self, user: UserId, size: int, patience_s: float) -> AsyncIterator[None]:
        """While it lasts a message of that size is on its way. Raises OverQuota when that has to wait too long, or
        behind too much.
        """
        line = self._lines.setdefault(user, Line())
        try:
            if line.waiting or not line.has_room(size):
                await _wait(line, size, patience_s)
            else:
                line.on_the_way += size
            try:
                yield
            finally:
                line.on_the_way -= size
                line.move_up()
        finally:
            if not line.on_the_way and not line.waiting:
                self._lines.pop(user, None)


async def _wait(line: Line, size: int, patience_s: float) -> None:
    if sum(waiting for waiting, _ in line.waiting) + size > MOST_WAITING_BYTES:
        raise _too_much(f"more than {MOST_WAITING_BYTES} bytes of them wait")
    turn = asyncio.get_running_loop().create_future()
    line.waiting.append((size, turn))
    try:
        async with asyncio.timeout(patience_s):
            await turn
    except BaseException as error:
        _give_up(line, size, turn)
        if isinstance(error, TimeoutError):
            raise _too_much(f"this one has waited for {patience_s:g} s") from None
        raise


def _give_up(line: Line, size: int, turn: asyncio.Future[None]) -> None:
    """Its client has gone, or it has waited for too long; perhaps its turn came in that moment."""
    if turn.done() and not turn.cancelled():
        line.on_the_way -= size
    elif (size, turn) in line.waiting:
        line.waiting.remove((size, turn))
    line.move_up()


def _too_much(why: str) -> OverQuota:
    message = f"too much of your messages is on its way: {why}; send it again when others are answered"
    return OverQuota(message, code="too_much_at_once", retry_after_s=1)
