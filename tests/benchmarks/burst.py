"""A replica that bursts as engines do: each step writes one token of every reply, all in one batch.

In: reply ids, tokens a second, how many. Out: records in `replies`; each token's text is the time, in nanoseconds of
the system's monotonic clock, at which its record was handed to the producer. All processes of one machine share it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

from schemas.codec import Codec
from schemas.events import Origin, pack_ids
from schemas.ids import ConversationId, Incarnation, ReplyId, UserId, assistant_message_id, user_message_id
from schemas.reply import Record
from schemas.reply_records import Accepted, Finished, Started, Tokens
from topics.catalog import Sizes
from topics.config import KafkaConfig
from topics.kafka import KafkaLog
from topics.outputs import Encoder, Routes

REPLICA = Incarnation("burst")
ORIGIN = Origin("generate.main.paid", 0, 0)


def accepted(reply: ReplyId, user: str) -> Accepted:
    deadline_ms = time.time_ns() // 1_000_000 + 600_000
    return Accepted(
        UserId(user), "a", "paid", ConversationId("c"), user_message_id(reply), assistant_message_id(reply), False,
        "m", "main", "paid", 1, 0, deadline_ms, "continue", False, "t",
    )  # fmt: skip


def run(kafka: str, user: str, replies: Sequence[ReplyId], rate: float, tokens: int, steps: Connection) -> None:
    """Opens the replies, says so, and bursts once it is told to; `rate` 0: as fast as the log takes it."""
    producer = KafkaLog(KafkaConfig(kafka=kafka)).producer()
    encoder, routes = Encoder(Codec(), Sizes(), REPLICA), Routes(Sizes())

    def write(reply: ReplyId, record: Record) -> None:
        producer.send(encoder.append(routes.reply(reply, record)))

    for reply in replies:
        write(reply, accepted(reply, user))
        write(reply, Started(1, "main/0", REPLICA, "f", ORIGIN, 0))
    producer.flush(30.0)
    steps.send("open")
    steps.recv()
    due = time.monotonic()
    for n in range(1, tokens + 1):
        for reply in replies:
            write(reply, Tokens(1, REPLICA, n, pack_ids((n,)), (str(time.monotonic_ns()),)))
        producer.poll()
        if rate:
            due += 1 / rate
            time.sleep(max(0.0, due - time.monotonic()))
    for reply in replies:
        write(reply, Finished(1, REPLICA, "length", tokens))
    producer.flush(60.0)
    producer.close()
    steps.send("written")
