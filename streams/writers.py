"""Who has written to one partition of `messages`, and how far each has come: a record that comes twice is decided once.

A producer that was not told of its records' arrival, as while a broker comes back, may send all of them again, and a
refused message must not be accepted then. Each writer numbers what it sends, in order, so one number a writer is all
that is kept, until nothing has come of it for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from schemas.kept_records import WriterKept, WritersKept
from topics.catalog import INTAKE_STATE, MINUTE
from topics.log import Place
from topics.outputs import Output, Written

WRITERS = "/:writers"  # no user can name a conversation so
KEPT_SILENT_MS = 10 * MINUTE  # far longer than a producer tries
MOST_WRITERS = 1_000


@dataclass(slots=True)
class Writers:
    """By name, the longest silent first; `changed` since the last commit."""

    kept: OrderedDict[str, WriterKept] = field(default_factory=OrderedDict)
    changed: bool = False

    def is_repeat(self, written: Written | None, now_ms: int) -> bool:
        """Whether a record was here before; of one that says no number nobody knows."""
        if written is None:
            return False
        before = self.kept.get(written.writer)
        if before is not None and written.number <= before.number:
            return True
        self.kept[written.writer] = WriterKept(written.writer, written.number, now_ms)
        self.kept.move_to_end(written.writer)
        self.changed = True
        while len(self.kept) > MOST_WRITERS or now_ms - next(iter(self.kept.values())).at_ms > KEPT_SILENT_MS:
            self.kept.popitem(last=False)
        return False

    def restore(self, kept: WritersKept) -> None:
        self.kept = OrderedDict((writer.name, writer) for writer in kept.writers)

    def changes(self, partition: int) -> Iterator[Output]:
        if self.changed:
            yield Output(Place(INTAKE_STATE, partition), WRITERS, WritersKept(tuple(self.kept.values())))
        self.changed = False
