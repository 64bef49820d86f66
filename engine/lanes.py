"""What a replica is told: requests from its lanes, commands beside them.

It starts at the ends: what lies there was for an incarnation before this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from schemas.codec import CodecError, UnknownType
from schemas.events import LanePosition
from topics.catalog import TIERS, commands_topic, lane_topic
from topics.log import Log, Place, Record
from topics.schemas import Decoder

BATCH = 500


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A record that is no event: to be put aside, and its reply told."""

    record: Record
    error: str


def unwatched(_: Record, __: object) -> None:
    """Nobody watches."""


class Lanes:
    """The lanes and the commands of one slot."""

    def __init__(
        self, log: Log, decoder: Decoder, pool: str, slot: int, seen: Callable[[Record, object], None] = unwatched
    ) -> None:
        """`seen` is told of each record that it can read."""
        self._reader, self._decoder, self._seen = log.reader(), decoder, seen
        self._lanes = {tier: Place(lane_topic(pool, tier), slot) for tier in TIERS}
        ends = {place: self._reader.end(place) for place in (*self._lanes.values(), Place(commands_topic(pool), slot))}
        for place, end in ends.items():
            self._reader.add(place, end)

    def take(self, timeout_s: float) -> Iterator[Any]:
        """Events as they come, bad records as Undecodable, types of a newer version not at all; waits up to
        `timeout_s` for the first."""
        for record in self._reader.poll(BATCH, timeout_s):
            try:
                event = self._decoder.decode(record.value)
            except UnknownType:
                continue
            except CodecError as error:
                if record.value is not None:
                    yield Undecodable(record, str(error))
                continue
            self._seen(record, event)
            yield event

    def positions(self) -> tuple[LanePosition, ...]:
        """The next offset to be read of each lane."""
        return tuple(LanePosition(tier, self._reader.position(place)) for tier, place in self._lanes.items())

    def close(self) -> None:
        self._reader.close()
