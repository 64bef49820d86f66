"""`make bench-faults`: what clients notice of a death, a freeze, a broken connection and a stop, under live replies.

Scripted replicas say each message again at 28 tokens a second, so every byte is known beforehand: a reply that came
whole came right. Times are from this machine's one clock; those of the log are its records' times.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from schemas import reply_records as r
from schemas.codec import Codec
from schemas.events import GenerateRequested, ReplicaBeat
from schemas.ids import ReplyId
from tests.benchmarks import readers
from tests.benchmarks.readers import Heard
from tests.benchmarks.rounds import Worker, cores
from tests.services.client import Client
from tests.services.running import MendedStack
from topics.catalog import REPLICAS, REPLIES, generate_topic
from topics.config import KafkaConfig
from topics.kafka import KafkaLog
from topics.log import Place, Record

RATE = 28
# A script has nothing to prefill: with bounds on a step's tokens and time the gap would be that of its pace.
ENV = {
    "LANEWAY_REPLICAS": "2",
    "LANEWAY_SCRIPTED_RATE": str(RATE),
    "LANEWAY_MAX_RUNNING": "256",
    "LANEWAY_STEP_TOKENS": "1000000",
    "LANEWAY_STEP_TIME": "1000",
}
FROZEN_S = 5.0
MODEL_TOKENS = 400  # longer than another replica takes to start


@dataclass(frozen=True)
class Talk:
    """A reply, what it must say, and what its client heard."""

    reply: ReplyId
    text: str
    heard: list[Heard]
    first_event_ms: list[float]

    @property
    def said(self) -> str:
        return "".join(one.data["text"] for one in self.heard if one.name == "token")

    @property
    def right(self) -> bool:
        """Nothing lost, doubled or changed, up to where it ended."""
        whole = self.said == self.text if self.heard[-1].name == "finished" else self.text.startswith(self.said)
        return whole and [one.number for one in self.heard] == list(range(len(self.heard)))

    @property
    def gap_ms(self) -> float:
        """The longest silence between two events."""
        return max((later.at_ns - sooner.at_ns) / 1e6 for sooner, later in pairwise(self.heard))


class Bench:
    """`model`: a model answers, greedily; what it says undisturbed is what it must say."""

    def __init__(self, stack: MendedStack, streams: int, *, model: bool) -> None:
        self.stack, self.streams, self._model = stack, streams, model
        self.log, self._codec = KafkaLog(KafkaConfig(kafka=stack.kafka)), Codec()
        self._rounds = 0

    def talk(self, seconds: float, meanwhile: Callable[[list[ReplyId]], None], cuts: int = 0) -> list[Talk]:
        """All streams for so long; `meanwhile` runs when all of them are being read. `cuts` are shared out."""
        if not self._model:
            texts = [f"{n} of round {self._rounds}:" + " on" * int(RATE * seconds) for n in range(self.streams)]
            return self._talk(texts, texts, {}, seconds, meanwhile, cuts)
        texts = [f"Tell me a long story about the number {n}." for n in range(self.streams)]
        asked = {"temperature": 0.0, "max_tokens": MODEL_TOKENS, "ignore_eos": True}
        undisturbed = self._talk(texts, texts, asked, seconds, lambda _: None, 0)
        return self._talk(texts, [talk.said for talk in undisturbed], asked, seconds, meanwhile, cuts)

    def _talk(
        self,
        texts: Sequence[str],
        expected: Sequence[str],
        asked: dict[str, Any],
        seconds: float,
        meanwhile: Callable[[list[ReplyId]], None],
        cuts: int,
    ) -> list[Talk]:
        self._rounds += 1
        with ThreadPoolExecutor(8) as pool:
            clients = [Client(self.stack) for _ in range(8)]
            posts = [
                pool.submit(clients[n % 8].say, f"r{self._rounds}-{n}", text, n % 2, **asked)
                for n, text in enumerate(texts)
            ]
            replies = [post.result() for post in posts]
        ports = [int(url.rsplit(":", 1)[1]) for url in self.stack.urls]
        moments: list[list[float]] = [[] for _ in replies]
        for _ in range(cuts):
            random.choice(moments).append(random.uniform(0.2, seconds * 0.7))
        moments = [sorted(each) for each in moments]
        worker = Worker(readers.follow, ports, self.stack.keys["alice"], replies, moments)
        worker.wait()
        meanwhile(replies)
        heard = worker.wait()
        return [Talk(*each, *told) for each, told in zip(zip(replies, expected, strict=True), heard, strict=True)]

    def records(self, topic: str) -> list[Record]:
        reader = self.log.reader()
        partitions = range(self.log.partitions(topic))
        ends = {Place(topic, n): reader.end(Place(topic, n)) for n in partitions}
        for place in ends:
            reader.add(place, reader.begin(place))
        found: list[Record] = []
        while any(reader.position(place) < end for place, end in ends.items()):
            found += reader.poll(10_000, 0.1)
        reader.close()
        return found

    def when(
        self, replies: Sequence[ReplyId], kind: type, attempt: int | None = None, topic: str = REPLIES
    ) -> dict[ReplyId, int]:
        """The log time of the first record of that kind of each reply."""
        wanted, found = set(replies), dict[ReplyId, int]()
        for record in self.records(topic):
            reply = ReplyId((record.key or b"").partition(b"/")[0].decode())
            if reply in wanted and reply not in found:
                event = self._codec.decode(record.value)
                if isinstance(event, kind) and (attempt is None or getattr(event, "attempt", None) == attempt):
                    found[reply] = record.timestamp_ms
        return found

    def beats(self, since_ms: int) -> list[tuple[int, ReplicaBeat]]:
        events = ((record.timestamp_ms, self._codec.decode(record.value)) for record in self.records(REPLICAS))
        return [(at, beat) for at, beat in events if at >= since_ms and isinstance(beat, ReplicaBeat)]


def percentiles(values: Sequence[float], unit: str = "ms") -> str:
    ordered = sorted(values)
    if not ordered:
        return "none"
    return f"{statistics.median(ordered):,.0f} / {ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]:,.0f} {unit}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def death(bench: Bench, table: Table) -> None:
    """All replies at one replica, which is killed; the other one takes over."""
    bench.stack.kill("replica-1")
    killed: list[int] = []

    def kill(_: list[ReplyId]) -> None:
        bench.stack.restart("replica-1")
        time.sleep(1.0)
        killed.append(now_ms())
        bench.stack.kill("replica-0")

    talks = bench.talk(14, kill)
    replies = [talk.reply for talk in talks]
    fenced, sent = bench.when(replies, r.AttemptOpened, 2), bench.when(replies, r.Dispatched, 2)
    asked = bench.when(replies, GenerateRequested, 2, generate_topic("main", "resume"))
    begun, said = bench.when(replies, r.Started, 2), bench.when(replies, r.Tokens, 2)
    moved = [reply for reply in replies if reply in said]
    _row(table, f"kill -9 with {len(moved)} replies running", talks, [talk.gap_ms for talk in talks], "gap")
    for what, before, after in (
        ("until it is fenced", dict.fromkeys(moved, killed[0]), fenced),
        ("until it is asked for again", fenced, asked),
        ("until it is dispatched again", asked, sent),
        ("until it has started", sent, begun),
        ("until its next token", begun, said),
    ):
        table.add_row(f"  of it: {what}", "", percentiles([after[one] - before[one] for one in moved]))
    bench.stack.restart("replica-0")


def freeze(bench: Bench, table: Table) -> None:
    """Both replicas serve; one stands still for five seconds, and goes on."""
    thawed: list[int] = []

    def stand_still(_: list[ReplyId]) -> None:
        bench.stack.freeze("replica-0")
        time.sleep(FROZEN_S)
        bench.stack.thaw("replica-0")
        thawed.append(now_ms())

    talks = bench.talk(14, stand_still)
    _row(table, f"SIGSTOP of {FROZEN_S:.0f} s, SIGCONT", talks, [talk.gap_ms for talk in talks], "gap")
    mine = [(at, beat) for at, beat in bench.beats(thawed[0]) if beat.slot == 0]
    freed = next((at for at, beat in mine if not beat.running and not beat.waiting), None)
    table.add_row("  until it holds no reply any more", "", f"{freed - thawed[0]} ms" if freed else "not seen")


def cut(bench: Bench, table: Table) -> None:
    """Connections break at random, and clients resume at either edge."""
    talks = bench.talk(14, lambda _: None, cuts=1_000)
    soon = [ms for talk in talks for ms in talk.first_event_ms]
    _row(table, f"{len(soon)} random cuts and resumes over two edges", talks, soon, "first event")


def stop(bench: Bench, table: Table) -> None:
    """Users stop replies under the load of all the others."""

    def stop_some(replies: list[ReplyId]) -> None:
        with Client(bench.stack) as client:
            for reply in random.sample(replies, len(replies) // 3):
                asked = now_ms()
                client.stop(reply, random.randrange(2))
                stops.append((reply, asked))

    stops: list[tuple[ReplyId, int]] = []
    talks = bench.talk(14, stop_some)
    in_log = bench.when([reply for reply, _ in stops], r.Stopped)
    ended = [in_log[reply] - asked for reply, asked in stops if reply in in_log]
    _row(table, f"{len(ended)} stops", talks, ended, "end in the log")


def _row(table: Table, what: str, talks: Sequence[Talk], values: Sequence[float], which: str) -> None:
    wrong = sum(not talk.right for talk in talks)
    table.add_row(what, f"{len(talks) - wrong} of {len(talks)} right", f"{which} {percentiles(values)}")


EXPERIMENTS: dict[str, Callable[[Bench, Table], None]] = {"death": death, "freeze": freeze, "cut": cut, "stop": stop}


def main(streams: int = 225, only: str = ",".join(EXPERIMENTS), model: bool = False) -> None:
    """On a stack of its own; the machine should have nothing else to do. `model`: SmolLM2 in place of the script."""
    console, table = Console(width=130), Table("fault", f"{streams} replies", "p50 / p99")
    env = {"LANEWAY_REPLICAS": "2", "LANEWAY_REPLICA": "model"} if model else ENV
    with tempfile.TemporaryDirectory() as folder, MendedStack(Path(folder), env) as stack:
        bench = Bench(stack, streams, model=model)
        for name in only.split(","):
            console.print(f"{name} ...")
            EXPERIMENTS[name](bench, table)
    console.print(table)
    console.print(cores())


if __name__ == "__main__":
    typer.run(main)
