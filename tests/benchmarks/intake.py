"""`make bench-intake`: how many messages a second intake decides, and how long a message waits for its Accepted.

The pure part alone, in this process: messages of conversations that are at hand, each settled before the next. Then one
process with a real broker: its CPU and the clock for a burst, and the time from a message to its Accepted, as a reader
of the log sees it, at half of the rate that the burst was taken at.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import typer
from rich.console import Console
from rich.table import Table
from uuid_utils import uuid7

from infra.local.model import fetch
from infra.local.up import ensure_topics
from schemas.codec import Codec
from schemas.events import HistoryLoaded, MessagePosted, ReplySettled, Sampling, Turn, pack_ids
from schemas.ids import ConversationId, Incarnation, ReplyId, UserId, assistant_message_id, user_message_id
from schemas.quota_records import UsageAsked
from schemas.reply_records import Accepted, UsageTold
from schemas.settings import load
from schemas.tokenizer import ChatTokenizer
from streams.admission import Model
from streams.config import StreamsConfig
from streams.intake import Intake
from streams.runtime.main import run
from streams.stage import Message
from tests.benchmarks.rounds import SPAWN, cores
from tests.stack import small_broker
from topics.catalog import MESSAGES, REPLIES
from topics.config import KafkaConfig
from topics.kafka import KafkaLog
from topics.log import Place, Reader
from topics.outputs import Encoder, Output, Routes, reply_of_key
from topics.schemas import publish

SIZES = {"200 bytes": 200, "2.4 KB": 2_400}
WORDS = "Please tell me again how the water of a river finds its way to the sea, and why it does not stop. "
ANSWER = "It follows the ground, which falls towards the sea."
TURNS = 5
PATIENCE_S = 120.0
LISTEN_S = 0.05  # a wait that ends with the first record; without one this process would take a core of its own


def text_of(size: int, n: int) -> str:
    """Another one each time, of so many bytes."""
    return (f"{n} {WORDS * (size // len(WORDS) + 1)}")[:size]


@dataclass(frozen=True)
class Talk:
    """The n-th conversation: what is said in it, and how its replies end."""

    n: int
    size: int
    model: ChatTokenizer

    def posted(self, turn: int, now_ms: int) -> MessagePosted:
        user, conversation = UserId(f"user-{self.n}"), ConversationId(f"c-{self.n}")
        reply = ReplyId(f"r00{self.n % 16:03x}-{now_ms:012x}{self.n:015x}{turn:05x}-00000000")
        text, drawn = text_of(self.size, self.n), Sampling(max_tokens=0, seed=turn)
        key = f"key-{turn}"
        return MessagePosted(
            user, "acme", "free", conversation, reply, key, "h" * 64, text, self.model.name, drawn, 600_000
        )

    def settled(self, posted: MessagePosted) -> ReplySettled:
        answer, question = assistant_message_id(posted.reply), user_message_id(posted.reply)
        ids, tokenizer = pack_ids(self.model.encode(ANSWER)), self.model.fingerprint
        turn = Turn(answer, question, "assistant", ANSWER, ids, tokenizer, "complete")
        return ReplySettled(posted.user, posted.conversation, posted.reply, "finished", 50, 0, 11, turn)


def pure(tokenizer: ChatTokenizer, size: int, count: int) -> float:
    """Messages a second of this core; what settles them and loads their histories costs time too."""
    sizes = load(KafkaConfig, {}).sizes
    stage, place = Intake({tokenizer.name: Model(tokenizer, "main")}, Routes(sizes)), Place(MESSAGES, 0)
    stage.assigned(place, None)
    now_ms, log = time.time_ns() // 1_000_000, list[Any]()
    for n in range(count // TURNS):
        talk = Talk(n, size, tokenizer)
        for turn in range(TURNS):
            posted = talk.posted(turn, now_ms)
            loaded = [HistoryLoaded(posted.user, posted.conversation, True, (), ())] if not turn else []
            log += [posted, *loaded, talk.settled(posted)]
    began, accepted = time.process_time(), 0
    for offset, event in enumerate(log):
        decision = stage.apply(Message(place, offset, now_ms, b"", event))
        accepted += any(isinstance(output.event, Accepted) for output in decision.first)
    spent = time.process_time() - began
    assert accepted == count // TURNS * TURNS, f"{accepted} of {count} were accepted"
    return accepted / spent


def serve(environ: dict[str, str]) -> None:
    os.environ.update(environ)
    run(("intake",))


class Bench:
    """A broker's topics, an intake in a process of its own, and a reader of what it says."""

    def __init__(self, bootstrap: str, folder: Path, model: Path, talks: Sequence[Talk]) -> None:
        config = KafkaConfig(kafka=bootstrap)
        self.talks, self._log = talks, KafkaLog(config)
        ensure_topics(config)
        codec = Codec()
        publish(self._log, codec)
        self._codec, self._routes = codec, Routes(config.sizes)
        self._encoder = Encoder(codec, config.sizes, Incarnation(f"bench-{uuid7().hex}"))
        self._producer = self._log.producer(60.0)
        self._reader = self._follow(config.replies)
        environ = {
            "LANEWAY_KAFKA": bootstrap,
            "LANEWAY_MODEL": str(model),
            "LANEWAY_STORE": str(folder / "store.sqlite"),
        }
        self.process = SPAWN.Process(target=serve, args=(environ,), daemon=True)
        self.process.start()
        self._turn = 0

    def _follow(self, partitions: int) -> Reader:
        reader = self._log.reader()
        for partition in range(partitions):
            reader.add(Place(REPLIES, partition), 0)
        return reader

    def round(self, talks: Sequence[Talk], rate: float = 0.0) -> list[float]:
        """Posts a message of each, at so many a second or all at once, and settles what comes back; seconds from each
        post to its Accepted, the last one's wait after the first post at the end.
        """
        self._turn += 1
        posts = [(talk, talk.posted(self._turn, time.time_ns() // 1_000_000)) for talk in talks]
        sent: dict[ReplyId, float] = {}
        waits: list[float] = []
        began = time.perf_counter()
        deadline = time.monotonic() + PATIENCE_S + (len(posts) / rate if rate else 0)
        while len(waits) < len(posts):
            assert time.monotonic() < deadline, f"{len(waits)} of {len(posts)} were accepted"
            due = len(posts) if not rate else min(len(posts), int((time.perf_counter() - began) * rate) + 1)
            for _, posted in posts[len(sent) : due]:
                sent[posted.reply] = time.perf_counter()
                self._send(self._routes.message(posted.user, posted))
            self._producer.poll()
            next_s = began + len(sent) / rate - time.perf_counter() if rate and len(sent) < len(posts) else LISTEN_S
            heard = self._heard(Accepted, max(0.0, min(next_s, LISTEN_S)))
            waits += [time.perf_counter() - sent[reply] for reply in heard if reply in sent]
        took = time.perf_counter() - began
        self._settle(posts)
        return [*waits, took]

    def _settle(self, posts: Sequence[tuple[Talk, MessagePosted]]) -> None:
        """Ends all replies; returns when intake has read it, as an answer to a question behind it in each partition
        tells: the next round's messages are not to wait for it."""
        asked: dict[Place, Output] = {}
        for talk, posted in posts:
            self._send(self._routes.message(posted.user, talk.settled(posted)))
            question = self._routes.message(posted.user, UsageAsked(posted.user, posted.reply, ""))
            asked[question.place] = question
        for question in asked.values():
            self._send(question)
        self._producer.flush(PATIENCE_S)
        told, deadline = 0, time.monotonic() + PATIENCE_S
        while told < len(asked):
            assert time.monotonic() < deadline, f"{told} of {len(asked)} partitions were read to their ends"
            told += sum(1 for _ in self._heard(UsageTold, LISTEN_S))

    def _send(self, output: Output) -> None:
        self._producer.send(self._encoder.append(output))

    def _heard(self, kind: type, wait_s: float) -> Iterator[ReplyId]:
        for record in self._reader.poll(1_000, wait_s):
            reply = reply_of_key(record.key)
            if reply and isinstance(self._codec.decode(record.value), kind):
                yield reply

    def cpu_s(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def close(self) -> None:
        self.process.terminate()
        self.process.join(20)
        self.process.kill()
        self._reader.close()
        self._producer.close()


def measured(bootstrap: str, model: Path, tokenizer: ChatTokenizer, size: int, count: int) -> tuple[str, ...]:
    """A burst that is taken as fast as it can be, then as many at half of that rate."""
    with tempfile.TemporaryDirectory() as folder:
        talks = [Talk(n + size * 1_000_000, size, tokenizer) for n in range(count)]
        bench = Bench(bootstrap, Path(folder), model, talks)
        try:
            bench.round(talks)  # their histories are at hand now
            before = bench.cpu_s()
            *_, took = bench.round(talks)
            cpu_s = bench.cpu_s() - before
            *waits, _ = bench.round(talks, rate=count / took / 2)
        finally:
            bench.close()
    waits.sort()
    p50, p99 = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
    return f"{count / took:,.0f}", f"{count / cpu_s:,.0f}", f"{1000 * p50:.1f}", f"{1000 * p99:.1f}"


def main(count: int = 1_000) -> None:
    """Measures on a broker of its own, with the tokenizer of LANEWAY_MODEL."""
    console = Console(width=110)
    model = fetch(load(StreamsConfig, os.environ).model.absolute(), console.print)
    tokenizer = ChatTokenizer.load(model)
    table = Table("message", "pure, messages/s", "with Kafka, messages/s", "of a core", "p50 ms", "p99 ms at half load")
    with tempfile.TemporaryDirectory() as folder:
        broker = small_broker(Path(folder))
        try:
            broker.wait_ready()
            for name, size in SIZES.items():
                alone = f"{pure(tokenizer, size, count):,.0f}"
                table.add_row(name, alone, *measured(broker.bootstrap, model, tokenizer, size, count))
        finally:
            broker.stop()
    console.print(table)
    console.print(cores())


if __name__ == "__main__":
    typer.run(main)
