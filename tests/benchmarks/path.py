"""`make bench-path`: what the way from a replica to a client's socket costs, against a raw reader of the same topic.

Rounds alternate: the raw reader alone, then clients of one edge, each under the same burst. Printed are medians over
the rounds and their ratios; absolute times are this machine's. Then the way in (POST to the replica's Started, read
back from the log), and one edge at full speed, with the log ahead of it, beside a bare Starlette stream that makes its
own events: what a writer and a broker take of the same cores is not the edge's speed.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Collection
from pathlib import Path

import httpx
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from schemas.codec import Codec
from schemas.ids import ReplyId
from schemas.reply_records import Started
from tests.benchmarks.listeners import PATIENCE_S
from tests.benchmarks.rounds import USER, Round, Rounds, cores
from tests.stack import Stack
from topics.catalog import REPLIES, Sizes
from topics.config import KafkaConfig
from topics.kafka import KafkaLog
from topics.log import Place
from topics.outputs import reply_of_key

RATE = 28.0
FULL_SPEED_STREAMS, FULL_SPEED_TOKENS = 64, 500
# A supervisor would fence the burst's replica, which sends no heartbeats.
ENV = {"LANEWAY_STAGES": "intake,router", "LANEWAY_MAX_RUNNING": "256"}


def main(streams: str = "64,225", rounds: int = 5, seconds: int = 4, posts: int = 60) -> None:
    """Measures on a stack of its own, on free ports; the machine should have nothing else to do."""
    console = Console(width=110)
    with tempfile.TemporaryDirectory() as folder, Stack(Path(folder), ENV) as stack:
        bench = Rounds(stack)
        bench.clients(8, RATE, 28)
        _report_latency(console, [_alternated(bench, int(count), rounds, seconds) for count in streams.split(",")])
        _report_posts(console, posted(stack, posts))
        _report_full_speed(console, bench, rounds)
    console.print(cores())


def _alternated(bench: Rounds, streams: int, rounds: int, seconds: int) -> tuple[int, list[Round], list[Round]]:
    raw, clients = [], []
    for _ in track(range(rounds), f"{streams} streams", transient=True):
        raw.append(bench.raw(streams, RATE, int(RATE * seconds)))
        clients.append(bench.clients(streams, RATE, int(RATE * seconds)))
    return streams, raw, clients


def _report_latency(console: Console, found: list[tuple[int, list[Round], list[Round]]]) -> None:
    table = Table(title=f"from the producer to the listener, {RATE:g} tokens/s a stream, median of the rounds")
    for name in ("streams", "raw reader p50 / p99", "client p50 / p99", "ratio p50 / p99", "edge CPU a token"):
        table.add_column(name, justify="right")
    for streams, raw, clients in found:
        low, high = (
            [statistics.median(one.latency_ms(share) for one in side) for share in (0.5, 0.99)]
            for side in (raw, clients)
        )
        cpu = statistics.median(one.cpu_us_per_event for one in clients)
        cells = [f"{p50:.1f} / {p99:.1f} ms" for p50, p99 in (low, high)]
        table.add_row(str(streams), *cells, f"{high[0] / low[0]:.1f} / {high[1] / low[1]:.1f}", f"{cpu:.0f} us")
    console.print(table)


def _report_posts(console: Console, times_ms: list[float]) -> None:
    ordered = sorted(times_ms)
    p50, p90 = (ordered[int(len(ordered) * share)] for share in (0.5, 0.9))
    console.print(f"POST to the replica's Started, read back from the log: p50 {p50:.0f} ms, p90 {p90:.0f} ms")


def _report_full_speed(console: Console, bench: Rounds, rounds: int) -> None:
    edge, bare = [], []
    for _ in track(range(rounds), "full speed", transient=True):
        bare.append(bench.bare(FULL_SPEED_STREAMS, FULL_SPEED_TOKENS))
        edge.append(bench.ahead(FULL_SPEED_STREAMS, FULL_SPEED_TOKENS))
    table = Table(title=f"{FULL_SPEED_STREAMS} streams at full speed, median of the rounds")
    for name in ("", "events/s", "CPU an event"):
        table.add_column(name, justify="right")
    speeds, costs = (
        [statistics.median(getattr(one, name) for one in side) for side in (edge, bare)]
        for name in ("events_per_s", "cpu_us_per_event")
    )
    for name, speed, cost in zip(("edge, from the log", "bare stream"), speeds, costs, strict=True):
        table.add_row(name, f"{speed:,.0f}", f"{cost:.1f} us")
    table.add_row("ratio", f"{speeds[0] / speeds[1]:.2f}", f"{costs[0] / costs[1]:.2f}")
    console.print(table)


def posted(stack: Stack, count: int) -> list[float]:
    """Milliseconds from a POST to the replica's Started, as a reader of the log sees it, of `count` posts in turn."""
    starts = _Starts(stack.kafka)
    starts.start()
    began: dict[ReplyId, float] = {}
    headers = {"Authorization": f"Bearer {stack.keys[USER]}"}
    with httpx.Client(headers=headers, trust_env=False, timeout=PATIENCE_S) as http:
        for n in range(count):
            at = time.monotonic()
            url = f"{stack.urls[0]}/v1/conversations/path-{n}/messages"
            answer = http.post(url, json={"text": "hello", "max_tokens": 1}).raise_for_status()
            began[answer.json()["reply"]] = at
    starts.wait_for(began)
    return [(starts.seen[reply] - at) * 1000 for reply, at in began.items()]


class _Starts(threading.Thread):
    """Notes when the Started of each reply is read."""

    def __init__(self, kafka: str) -> None:
        super().__init__(daemon=True)
        self.seen: dict[ReplyId, float] = {}
        self._enough = threading.Event()
        self._reader = KafkaLog(KafkaConfig(kafka=kafka)).reader()
        for partition in range(Sizes().replies):
            place = Place(REPLIES, partition)
            self._reader.add(place, self._reader.end(place))

    def run(self) -> None:
        codec = Codec()
        while not self._enough.is_set():
            records = self._reader.poll(1000, 0.05)
            at = time.monotonic()
            for record in records:
                reply = reply_of_key(record.key)
                if reply is not None and isinstance(codec.decode(record.value), Started):
                    self.seen.setdefault(reply, at)
        self._reader.close()

    def wait_for(self, replies: Collection[ReplyId]) -> None:
        """Raises TimeoutError when one of them does not start."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.seen.keys() >= set(replies):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(set(replies) - self.seen.keys())} of {len(replies)} replies did not start")
            time.sleep(0.05)
        self._enough.set()
        self.join()


if __name__ == "__main__":
    typer.run(main)
