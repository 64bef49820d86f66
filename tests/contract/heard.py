"""A tail by hand, and all that it has delivered; with ids of replies that are as old as a test wants them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count

from schemas.ids import ReplyId
from tests.contract.clusters import PATIENCE_S, wait_for
from topics.catalog import REPLIES
from topics.errors import TopicsError
from topics.log import Append, Log, Place
from topics.subscription import Delivery, Subscription
from topics.tail import VISIT_S, Tail

PARTITIONS = 64
UNUSED = count(0, 2)
NUMBERS = count(1)


class Heard:
    """What a tail has delivered, and a test's own two partitions: `home` is followed from the start, `away` not."""

    def __init__(self, log: Log, visit_s: float = VISIT_S) -> None:
        self.log = log
        self.home = next(UNUSED) % PARTITIONS
        self.away = self.home + 1
        self.values: defaultdict[Subscription, list[bytes | None]] = defaultdict(list)
        self.live: set[Subscription] = set()
        self.when_live: dict[Subscription, int] = {}
        self.failures: dict[Subscription, TopicsError | None] = {}
        self.tail = Tail(log, self._deliver, [self.home], visit_s)
        self._producer = log.producer()

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self.values[delivery.subscription] += [record.value for record in delivery.records]
            if delivery.live:
                self.live.add(delivery.subscription)
                self.when_live.setdefault(delivery.subscription, len(self.values[delivery.subscription]))
            if delivery.failure:
                self.failures[delivery.subscription] = delivery.failure

    def write(self, reply: ReplyId, *values: bytes, to: int | None = None, key: bytes | None = None) -> None:
        partition = int(reply[3:6], 16) if to is None else to
        for value in values:
            self._producer.send(Append(Place(REPLIES, partition), key or f"{reply}/w/0".encode(), value))
        self._producer.flush(PATIENCE_S)

    def close(self) -> None:
        self.tail.stop()
        self._producer.close()

    def run(self, until: Callable[[], bool]) -> None:
        def turn() -> bool:
            self.tail.catch_up(0.01)
            self.tail.follow_live(0.01)
            return until()

        wait_for(turn)


def minted(partition: int, age_ms: int = 0) -> ReplyId:
    created = time.time_ns() // 1_000_000 - age_ms
    return ReplyId(f"r00{partition:03x}-{created:012x}{next(NUMBERS):020x}-00000000")
