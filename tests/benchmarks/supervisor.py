"""`make bench-supervisor`: how many open replies a supervisor keeps up with on a core, and how long its restart takes.

A real broker holds the log of replies that run side by side, a token of each in turn. The stage runs as in production,
in a thread of this process; a second one then starts from its snapshot, with five seconds of tokens after it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from infra.local.up import ensure_topics
from schemas import reply_records as r
from schemas.codec import Codec
from schemas.events import Origin, ReplicaBeat, pack_ids
from schemas.ids import ConversationId, Incarnation, ReplyId, UserId, assistant_message_id, user_message_id
from streams.runtime.runner import Runner, Shell
from streams.supervisor import Supervisor
from tests.benchmarks.rounds import cores
from tests.stack import small_broker
from topics.config import KafkaConfig
from topics.kafka import KafkaLog
from topics.outputs import Encoder, Output, Routes
from topics.schemas import Decoder

RATE = 28
REPLICA = Incarnation("bench")
BATCH = 20_000
BETWEEN_SNAPSHOTS_S = 5
BEAT_S = 0.3


def reply_ids(count: int, partitions: int) -> list[ReplyId]:
    now = time.time_ns() // 1_000_000
    return [ReplyId(f"r00{n % partitions:03x}-{now:012x}{n:020x}-00000000") for n in range(count)]


def opening(routes: Routes, reply: ReplyId) -> Iterator[Output]:
    """A reply from its acceptance to its start."""
    who = UserId("u"), "acme", "free", ConversationId("c"), user_message_id(reply), assistant_message_id(reply)
    deadline_ms = time.time_ns() // 1_000_000 + 1_800_000
    origin = Origin("generate.main.free", 0, 0)
    yield routes.reply(reply, r.Accepted(*who, True, "m", "main", "free", 9, 1, deadline_ms, "continue", False, "t"))
    yield routes.reply(reply, r.Dispatched(1, "main/0", REPLICA, origin))
    yield routes.reply(reply, r.Started(1, "main/0", REPLICA, "f", origin, 0))


def tokens(routes: Routes, replies: list[ReplyId], first: int, count: int) -> Iterator[Output]:
    for n in range(first, first + count):
        for reply in replies:
            yield routes.reply(reply, r.Tokens(1, REPLICA, n, pack_ids((n,)), (" word",)))


class Bench:
    def __init__(self, bootstrap: str, open_replies: int) -> None:
        self._config = KafkaConfig(kafka=bootstrap)
        self.log, self.codec, self.routes = KafkaLog(self._config), Codec(), Routes(self._config.sizes)
        self._encoder = Encoder(self.codec, self._config.sizes, REPLICA)
        self._producer = self.log.producer(60.0)
        self.replies = reply_ids(open_replies, self._config.replies)
        ensure_topics(self._config)
        self.write(output for reply in self.replies for output in opening(self.routes, reply))

    def write(self, outputs: Iterator[Output]) -> int:
        written = 0
        while batch := list(islice(outputs, BATCH)):
            for output in batch:
                self._producer.send(self._encoder.append(output))
            self._producer.flush(60.0)
            written += len(batch)
        return written

    def supervisor(self, name: str) -> Supervised:
        return Supervised(self, Incarnation(name))

    def beat(self) -> None:
        """The replica lives."""
        beat = ReplicaBeat("main", 0, REPLICA, "ready", 9, 1, 0, 9, (), time.monotonic_ns(), 1.0, "f")
        self.write(iter((self.routes.replica_beat("main/0", beat),)))


class Supervised:
    """One supervisor's runner, and how long it takes to have read all that is written."""

    def __init__(self, bench: Bench, incarnation: Incarnation) -> None:
        bench.beat()
        self._bench, self._began, self._beaten_at = bench, time.monotonic(), time.monotonic()
        encoder = Encoder(bench.codec, bench.routes.sizes, incarnation)
        shell = Shell(bench.log, Decoder(bench.log, bench.codec), encoder, ThreadPoolExecutor(2))
        self.stage = Supervisor(incarnation, bench.routes)
        self._runner = Runner(self.stage, shell)

    def read_all(self) -> tuple[float, float]:
        """Seconds on the clock and of CPU since it was made, until every partition is caught up."""
        began_cpu = time.process_time()
        while not self._caught_up():
            self._step()
        return time.monotonic() - self._began, time.process_time() - began_cpu

    def _caught_up(self) -> bool:
        partitions = self.stage._partitions.values()
        return len(partitions) == self._bench.routes.sizes.replies and all(one.caught_up for one in partitions)

    def snapshot(self) -> None:
        """Steps until all that was read is in one, and leaves, which waits for its commit."""
        for partition in self.stage._partitions.values():
            partition.snapshot_due = True
        while any(partition._changed for partition in self.stage._partitions.values()):
            self._step()
        self.close()

    def _step(self) -> None:
        if time.monotonic() - self._beaten_at > BEAT_S:
            self._beaten_at = time.monotonic()
            self._bench.beat()
        self._runner.step(time.monotonic())

    def close(self) -> None:
        self._runner.close()


def main(open_replies: int = 1_000, each: int = 60) -> None:
    """Measures on a broker of its own; `each` is how many tokens each reply has at first."""
    console = Console(width=110)
    with tempfile.TemporaryDirectory() as folder:
        broker = small_broker(Path(folder))
        try:
            broker.wait_ready()
            _measure(console, Bench(broker.bootstrap, open_replies), each)
        finally:
            broker.stop()
    console.print(cores())


def _measure(console: Console, bench: Bench, each: int) -> None:
    count = bench.write(tokens(bench.routes, bench.replies, 1, each))
    first = bench.supervisor("first")
    from_start_s, cpu_s = first.read_all()
    first.snapshot()
    bench.write(tokens(bench.routes, bench.replies, each + 1, RATE * BETWEEN_SNAPSHOTS_S))
    second = bench.supervisor("second")
    restart_s, _ = second.read_all()
    second.close()
    table = Table("open replies", "records/s of a core", f"replies at {RATE} tokens/s a core", "restart")
    kept_up = count / cpu_s
    table.add_row(str(len(bench.replies)), f"{kept_up:,.0f}", f"{kept_up / RATE:,.0f}", f"{restart_s:.1f} s")
    console.print(table)
    console.print(f"without a snapshot: {count} records in {from_start_s:.1f} s")


if __name__ == "__main__":
    typer.run(main)
