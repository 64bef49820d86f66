"""The end of what a user has said: a deletion for each conversation, and the wait until the store shows none.

Each is asked for as the user's own DELETE would be, so intake forgets it, its open reply stops, and what comes late for
it is dropped.
"""

from __future__ import annotations

import time

from uuid_utils import uuid7

from schemas.codec import Codec
from schemas.events import ConversationDeleted
from schemas.ids import ConversationId, Incarnation, UserId
from streams.intake import Intake
from topics.catalog import MESSAGES, TURNS, Sizes
from topics.errors import Unavailable
from topics.log import Log, Place
from topics.outputs import Encoder, Routes
from topics.store.contract import Store
from topics.store.progress import Progress

PATIENCE_S = 60.0
POLL_EVERY_S = 0.1
PAGE = 200


class Said:
    """What lies in a partition of `messages` when this is made: whether intake has decided it, and history saved it."""

    def __init__(self, log: Log, store: Store, partition: int) -> None:
        self._log, self._progress = log, Progress(log, store)
        self._messages, self._turns = Place(MESSAGES, partition), Place(TURNS, partition)
        self._asked_to = self._progress.end(self._messages)
        self._saved_to: int | None = None

    def is_saved(self) -> bool:
        if self._saved_to is None:
            decided = self._log.committed(Intake.name, self._messages)
            if (decided.offset if decided else 0) < self._asked_to:
                return False
            self._saved_to = self._progress.end(self._turns)
        return self._progress.reached(self._turns, self._saved_to)


def delete_user(
    log: Log, sizes: Sizes, codec: Codec, store: Store, user: UserId, patience_s: float = PATIENCE_S
) -> int:
    """How many conversations were deleted, of all that the user had said when it began: what was not decided yet then,
    or not saved, is waited for. Raises Unavailable when some are still there after `patience_s`.
    """
    routes, encoder = Routes(sizes), Encoder(codec, sizes, Incarnation(f"users-{uuid7().hex[-12:]}"))
    producer = log.producer()
    said = Said(log, store, routes.of_user(user))
    asked: set[ConversationId] = set()
    deadline = time.monotonic() + patience_s
    try:
        while True:
            whole = said.is_saved()  # asked first: what is saved from now on is in the list
            found = {line.id for line in store.conversations(user, PAGE)}
            if whole and not found:
                return len(asked)
            for conversation in sorted(found - asked):
                producer.send(encoder.append(routes.message(user, ConversationDeleted(user, conversation))))
            producer.flush(patience_s)
            asked |= found
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"{len(found)} conversations of {user} are still in the store after {patience_s:g} s, or more are "
                    "on their way to it: are intake and history running? Run it again"
                )
            time.sleep(POLL_EVERY_S)
    finally:
        producer.close()
