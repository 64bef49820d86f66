"""What a stage projects: written before its positions move on, and held, with all that is read behind it, till it is.

A projection that is away, full or broken costs its readers time and nobody else anything: the runner goes on polling,
so that its group keeps it, and takes no more records than it holds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Generic, Protocol, TypeVar

from streams.stage import Message
from topics.errors import Unavailable
from topics.log import Place, Record
from topics.telemetry.logs import about


class Projected(Protocol):
    """What a record led to, with the messages that it projects."""

    @property
    def projected(self) -> Sequence[Message]: ...


T = TypeVar("T", bound=Projected)

AGAIN_AFTER_S = 1.0
TELL_EVERY_S = 30.0

logger = logging.getLogger(__name__)


class Projecting(Generic[T]):
    """`project` writes durably, or raises Unavailable; `why` it could not is empty while it can."""

    def __init__(self, stage: str, project: Callable[[Sequence[Message]], None]) -> None:
        self._stage, self._project = stage, project
        self._held: list[tuple[Record, T]] = []
        self._again_at = self._tell_at = 0.0
        self.why = ""

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def through(self, read: list[tuple[Record, T]], now: float) -> list[tuple[Record, T]]:
        """Takes records with what they lead to; gives back those that are written now."""
        if not self._held and not any(decision.projected for _, decision in read):
            return read  # every token comes by
        self._held += read
        if self.why and now < self._again_at:
            return []
        messages = [message for _, decision in self._held for message in decision.projected]
        try:
            if messages:
                self._project(messages)
        except Unavailable as error:
            self._missed(error, len(messages), now)
            return []
        if self.why:
            logger.info("%s: what was held is saved", self._stage)
        done, self._held, self.why = self._held, [], ""
        return done

    def forget(self, places: Collection[Place]) -> None:
        """Somebody else reads these now, and has not been told that anything of what is held was done."""
        self._held = [held for held in self._held if held[0].place not in places]

    def _missed(self, error: Unavailable, count: int, now: float) -> None:
        if not self.why or now >= self._tell_at:
            logger.error("%s: %d records cannot be saved and are held", self._stage, count, extra=about(error=error))
            self._tell_at = now + TELL_EVERY_S
        self.why, self._again_at = str(error), now + AGAIN_AFTER_S
