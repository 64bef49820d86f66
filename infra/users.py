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
from topics.catalog import TURNS, Sizes
from topics.errors import Unavailable
from topics.log import Log, Place
from topics.outputs import Encoder, Routes
from topics.store.contract import Store
from topics.store.progress import Progress

PATIENCE_S = 60.0
POLL_EVERY_S = 0.1
PAGE = 200


def delete_user(
    log: Log, sizes: Sizes, codec: Codec, store: Store, user: UserId, patience_s: float = PATIENCE_S
) -> int:
    """How many conversations were deleted, of all that were there when it began. Raises Unavailable when some still are
    after `patience_s`, or may be on their way to the store.
    """
    routes, encoder = Routes(sizes), Encoder(codec, sizes, Incarnation(f"users-{uuid7().hex[-12:]}"))
    producer = log.producer()
    progress, turns = Progress(log), Place(TURNS, routes.of_user(user))
    end = progress.end(turns)
    asked: set[ConversationId] = set()
    deadline = time.monotonic() + patience_s
    try:
        while (found := {line.id for line in store.conversations(user, PAGE)}) or not progress.reached(turns, end):
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
    return len(asked)
