"""A stage's state of its places, given back to it from the changelog: all of them by one reader, side by side."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing

from streams.runtime.inbox import Inbox
from streams.stage import Stage
from topics.log import BRIEFLY_MS, Log, Place

BATCH = 500
POLL_S = 0.05  # how long a restart waits for what lies there


def restore(stage: Stage, changelog: str, places: Collection[Place], log: Log, inbox: Inbox) -> None:
    """Tells the stage every committed record of the partitions that are numbered as its places. Raises Unavailable."""
    place_of = {Place(changelog, place.partition): place for place in places}
    with closing(log.reader(committed_only=True, hold_ms=BRIEFLY_MS)) as reader:
        begins, ends = {one: reader.begin(one) for one in place_of}, {one: reader.end(one) for one in place_of}
        for kept_in, begin in begins.items():
            reader.add(kept_in, begin)
        while any(reader.position(kept_in) < end for kept_in, end in ends.items()):
            for record in reader.poll(BATCH, POLL_S):
                message, error = inbox.read(record)
                if error:
                    inbox.dead_letter(record, error)
                elif message or record.value is None:
                    event = message.event if message else None
                    stage.restore(place_of[record.place], record.key or b"", event)
