"""The topic `replicas` as a replica reads it: whether another process has its slot, how the supervisor's clock goes.

In: the records from the oldest on. Like router and supervisor it goes by log order: an incarnation that first beats
after this one has taken its place; those that beat before were replaced by it, however late they speak again.
"""

from __future__ import annotations

from engine.errors import Replaced
from engine.replica import Identity
from schemas.codec import CodecError
from schemas.events import ReplicaBeat, SupervisorBeat
from schemas.ids import Incarnation
from topics.catalog import REPLICAS
from topics.log import Log, Place
from topics.schemas import Decoder

BATCH = 500
PLACE = Place(REPLICAS, 0)


class Succession:
    """`supervisor_beats` counts those after this incarnation's first beat."""

    def __init__(self, identity: Identity) -> None:
        self.supervisor_beats = 0
        self._identity = identity
        self._before: set[Incarnation] = set()
        self._begun = False

    def apply(self, event: object) -> None:
        """Raises Replaced."""
        me = self._identity
        if isinstance(event, SupervisorBeat):
            self.supervisor_beats += self._begun
        elif not isinstance(event, ReplicaBeat) or (event.pool, event.slot) != (me.pool, me.slot):
            return
        elif event.incarnation == me.incarnation:
            self._begun = True
        elif not self._begun:
            self._before.add(event.incarnation)
        elif event.incarnation not in self._before:
            raise Replaced(
                f"replica {me.name} is {event.incarnation} now, no longer {me.incarnation}: this process ends, to be"
                " started again; should it happen again and again, two processes serve this slot"
            )


class Watch:
    """Reads the topic for one thread."""

    def __init__(self, log: Log, decoder: Decoder, identity: Identity) -> None:
        self._decoder, self._reader = decoder, log.reader()
        self._reader.add(PLACE, self._reader.begin(PLACE))
        self._succession = Succession(identity)

    def look(self) -> int:
        """Takes what has come since the last look; returns the supervisor's beats so far. Raises Replaced."""
        for record in self._reader.poll(BATCH, 0.0):
            try:
                event = self._decoder.decode(record.value)
            except CodecError:
                continue  # whoever writes such beats is not seen by the others either
            self._succession.apply(event)
        return self._succession.supervisor_beats

    def close(self) -> None:
        self._reader.close()
