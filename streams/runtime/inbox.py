"""Records to messages: what a stage can read is handed on, what nobody could is put aside with its origin.

A tombstone and a record of a type that this version does not know are skipped; bytes that are no record become a dead
letter, except where the stage leaves that to another one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from schemas.codec import CodecError, UnknownType
from schemas.events import DeadLettered, Origin
from streams.stage import Message, Stage
from topics.log import Record
from topics.outputs import Output, dead_letter, written
from topics.schemas import Decoder
from topics.telemetry.logs import about

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Inbox:
    """Decodes for one stage; `skipped` and `dead` count what did not reach it."""

    stage: Stage
    decoder: Decoder
    skipped: int = 0
    dead: int = 0

    def read(self, record: Record) -> tuple[Message | None, str | None]:
        """The message in a record, or why there is none; neither for a record that is to be skipped."""
        if record.value is None:
            self.skipped += 1
            return None, None
        try:
            event = self.decoder.decode(record.value)
        except UnknownType:
            self.skipped += 1
            return None, None
        except CodecError as error:
            return None, str(error)
        size, by = len(record.value), written(record.headers) if record.headers else None
        return Message(record.place, record.offset, record.timestamp_ms, record.key, event, size, by), None

    def dead_letter(self, record: Record, error: str) -> tuple[Output, ...]:
        """Puts a record aside; nothing if this stage leaves bad records to another."""
        place = record.place
        self.dead += 1
        where, why = (place.topic, place.partition, record.offset), error.partition("(")[0]  # no word of a user
        logger.warning("%s: %s[%d]@%d is bad", self.stage.name, *where, extra=about(error=why))
        if not self.stage.keeps_dead_letters or place.topic not in self.stage.inputs:
            return ()
        origin = Origin(place.topic, place.partition, record.offset)
        return (dead_letter(DeadLettered(origin, self.stage.name, error, record.key, record.value)),)
