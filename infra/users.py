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
from topics.catalog import Sizes
from topics.errors import Unavailable
from topics.log import Log
from topics.outputs import Encoder, Routes
from topics.store.contract import Store

PATIENCE_S = 60.0
POLL_EVERY_S = 0.1
PAGE = 200


def delete_user(
    log: Log, sizes: Sizes, codec: Codec, store: Store, user: UserId, patience_s: float = PATIENCE_S
) -> int:
    """How many conversations were deleted. Raises Unavailable when some are still there after `patience_s`."""
    routes, encoder = Routes(sizes), Encoder(codec, sizes, Incarnation(f"users-{uuid7().hex[-12:]}"))
    producer = log.producer()
    asked: set[ConversationId] = set()
    deadline = time.monotonic() + patience_s
    try:
        while found := {line.id for line in store.conversations(user, PAGE)}:
            for conversation in sorted(found - asked):
                producer.send(encoder.append(routes.message(user, ConversationDeleted(user, conversation))))
            producer.flush(patience_s)
            asked |= found
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"{len(found)} conversations of {user} are still in the store after {patience_s:g} s: "
                    "are intake and history running? Run it again"
                )
            time.sleep(POLL_EVERY_S)
    finally:
        producer.close()
    return len(asked)
