"""`python -m tests.benchmarks.store`: turns a second into each store, and how long its newest 20 turns take to read.

The same records go into SQLite and into a real Cassandra of one node, in batches as history saves them: exchanges of a
question of 60 tokens and an answer of 400, spread over conversations of 20 exchanges. Then one conversation of ten
thousand turns is written, and the newest 20 turns of it and of short ones are read in turn, one call after the other.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from infra.local.cassandra import ONE_COPY
from schemas.events import Turn, TurnSaved, pack_ids
from schemas.ids import ConversationId, MessageId, ReplyId, UserId
from tests.stack import small_node
from topics.store.cassandra import CassandraStore, migrate
from topics.store.config import StoreConfig
from topics.store.contract import SavedAt, Store
from topics.store.sqlite import SqliteStore

USERS, CONVERSATIONS, EXCHANGES, LONG, BATCH, READS = 10, 10, 20, 5_000, 500, 300
ADA = UserId("ada")


def exchange(user: UserId, conversation: ConversationId, n: int, offset: int, draw: random.Random) -> list[SavedAt]:
    reply = ReplyId(f"r00000-{offset:032x}-00000000")
    made = []
    for role, count in (("user", 60), ("assistant", 400)):
        text = "".join(draw.choices("etaoin shrdlu", k=4 * count))
        ids = pack_ids(draw.choices(range(49_152), k=count))
        turn = Turn(MessageId(f"{role[0]}-{offset:032x}"), None, role, text, ids, "f" * 16, "complete")
        key = f"key-{offset}" if role == "user" else None
        saved = TurnSaved(user, conversation, turn, reply, "smollm2-135m-instruct", n + 1, key, key, posted_ms=n + 1)
        made.append(SavedAt(offset + len(made), saved))
    return made


def records(draw: random.Random) -> list[SavedAt]:
    """As a partition of `turns` has them: users by turns."""
    places = [(UserId(f"u{u}"), ConversationId(f"c{c}")) for u in range(USERS) for c in range(CONVERSATIONS)]
    rounds = [(place, n) for n in range(EXCHANGES) for place in places]
    return [saved for i, (place, n) in enumerate(rounds) for saved in exchange(*place, n, 2 * i, draw)]


def save(store: Store, saved: Sequence[SavedAt]) -> float:
    """Seconds."""
    began = time.monotonic()
    for start in range(0, len(saved), BATCH):
        store.save(saved[start : start + BATCH])
    return time.monotonic() - began


def percentiles(read: Callable[[int], object]) -> str:
    took = []
    for n in range(READS):
        began = time.monotonic()
        read(n)
        took.append((time.monotonic() - began) * 1000)
    return f"p50 {statistics.median(took):.1f} ms, p99 {sorted(took)[int(READS * 0.99)]:.1f} ms"


def measure(name: str, store: Store) -> None:
    draw = random.Random(7)
    some = records(draw)
    long = [saved for n in range(LONG) for saved in exchange(ADA, ConversationId("long"), n, 10**6 + 2 * n, draw)]
    print(f"{name}: {len(some) / save(store, some):.0f} turns/s over {USERS * CONVERSATIONS} conversations")
    print(f"{name}: {len(long) / save(store, long):.0f} turns/s into one conversation of {len(long)} turns")

    def short(n: int) -> object:
        return store.messages(UserId(f"u{n % USERS}"), ConversationId(f"c{n // USERS % CONVERSATIONS}"), 20)

    print(f"{name}: newest 20 of 40 turns {percentiles(short)}")
    print(f"{name}: newest 20 of 10,000 turns {percentiles(lambda _: store.messages(ADA, ConversationId('long'), 20))}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        with closing(SqliteStore(Path(folder) / "store.sqlite")) as embedded:
            measure("SQLite", embedded)
        node = small_node(Path(folder) / "cassandra")
        try:
            node.wait_ready()
            config = StoreConfig(store=f"cassandra://{node.address}/bench")
            migrate(config, ONE_COPY)
            with closing(CassandraStore(config)) as store:
                measure("Cassandra", store)
        finally:
            node.process.kill()


if __name__ == "__main__":
    sys.exit(main())
