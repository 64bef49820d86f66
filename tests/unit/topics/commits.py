"""A group's position in one place, as whoever reads it there commits it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from topics.log import Place, Position
from topics.memory import MemoryLog


class _FromTheBeginning:
    def assigned(self, places: Collection[Place]) -> Mapping[Place, int]:
        return dict.fromkeys(places, 0)

    def revoked(self, places: Collection[Place]) -> None: ...

    def lost(self, places: Collection[Place]) -> None: ...


def commit(log: MemoryLog, group: str, place: Place, offset: int, words: str = "") -> None:
    member = log.group(group, [place.topic], _FromTheBeginning(), "0")
    member.poll(1, 0.0)
    member.commit({place: Position(offset, words)})
    member.close()
