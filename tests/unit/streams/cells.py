"""A whole cell's log in one process, stepped by hand: runners on the in-memory twin, and what they have written.

The log counts the calls that clients make and lets a process die at any one of them. No poll waits, since nothing
happens here by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor, Future
from itertools import count
from typing import Any

from schemas.codec import Codec
from schemas.events import HistoryLoaded, MessagePosted
from schemas.ids import Incarnation, ReplyId
from schemas.reply import Reply
from schemas.tokenizer import ChatTokenizer
from streams.admission import Model
from streams.intake import Intake
from streams.runtime.runner import Runner, Shell
from streams.stage import HistoryWanted, Message, Stage, Wanted
from tests.unit.streams.staged import SIZES, T0
from topics.catalog import REPLIES, Sizes, catalog
from topics.log import HOLD_MS, Append, Place, Rebalance, Record
from topics.memory import MemoryLog, MemoryProducer, MemoryReader, MemoryTransactions
from topics.memory_group import MemoryGroupConsumer
from topics.outputs import Encoder, Output, Routes, reply_of_key
from topics.schemas import Decoder

CODEC = Codec()


class Crash(Exception):
    """The process is gone."""


class Never(Executor):
    """Takes everything and ends nothing."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return Future()


class AtOnce(Executor):
    """Runs what it is given before `submit` returns."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  as executors do
            future.set_exception(error)
        return future


class DoneMeanwhile(AtOnce):
    """What it is given is done the moment after it is first asked for."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        found: Future[Any] = JustNow()
        found.set_result(super().submit(call, *args, **kwargs).result())
        return found


class JustNow(Future[Any]):
    asked = False

    def done(self) -> bool:
        before, self.asked = self.asked, True
        return before


class CountedLog(MemoryLog):
    """`calls` names every call of a client so far; the one at index `crash_at` raises Crash, once."""

    def __init__(self, sizes: Sizes, clock: Callable[[], int]) -> None:
        super().__init__({topic.name: topic.partitions for topic in catalog(sizes)}, clock)
        self.calls: list[str] = []
        self.crash_at = -1

    def producer(self, delivery_timeout_s: float = 10.0) -> MemoryProducer:
        return self._counted(super().producer(delivery_timeout_s), "send", "flush")

    def transactions(self, group: str, topic: str, instance: str) -> MemoryTransactions:
        return self._counted(super().transactions(group, topic, instance), "commit")

    def group(self, name: str, topics: Collection[str], rebalance: Rebalance, instance: str) -> MemoryGroupConsumer:
        return self._counted(super().group(name, topics, rebalance, instance), "poll", "commit")

    def reader(self, *, committed_only: bool = False, hold_ms: int = HOLD_MS) -> MemoryReader:
        return self._counted(super().reader(committed_only=committed_only), "poll")

    def _counted(self, client: Any, *names: str) -> Any:
        for name in names:
            setattr(client, name, self._call(name, getattr(client, name)))
        return client

    def _call(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            self.calls.append(f"send {args[0].place.topic}" if name == "send" else name)
            if len(self.calls) - 1 == self.crash_at:
                raise Crash(self.calls[-1])
            return call(args[0], 0.0) if name == "poll" else call(*args)

        return counted


class Cell:
    """The log, the clock that it stamps records with, and the time of the steps."""

    def __init__(self, sizes: Sizes, codec: Codec = CODEC) -> None:
        self.sizes, self.routes, self._codec = sizes, Routes(sizes), codec
        self.now_ms = T0
        self.log = CountedLog(sizes, lambda: self.now_ms)
        self.asked: list[Wanted] = []
        self._names = (Incarnation(f"writer-{n}") for n in count())
        self._steps = count()
        self._writer = self.encoder()

    def encoder(self) -> Encoder:
        return Encoder(CODEC, self.sizes, next(self._names))

    def runner(
        self,
        stage: Stage,
        instance: str = "0",
        perform: Callable[[Wanted], Output] | None = None,
        project: Callable[[Sequence[Message]], None] = list,
        beside: Executor | None = None,
    ) -> Runner:
        """A process of its own, as the log sees it."""
        decoder = Decoder(self.log, self._codec)
        perform, beside = perform or self.empty_history, beside or AtOnce()
        shell = Shell(self.log, decoder, self.encoder(), beside, instance, perform, project)
        return Runner(stage, shell)

    def empty_history(self, wanted: Wanted) -> Output:
        assert isinstance(wanted, HistoryWanted)
        self.asked.append(wanted)
        return self.routes.message(
            wanted.user,
            HistoryLoaded(wanted.user, wanted.conversation, True, (), (), wanted.leaf, deleted_ms=wanted.deleted_ms),
        )

    def step(self, *runners: Runner, times: int = 1) -> None:
        for _ in range(times):
            for runner in runners:
                runner.step(next(self._steps) * 0.1)

    def write(self, *outputs: Output) -> None:
        producer = MemoryProducer(self.log)
        for output in outputs:
            producer.send(self._writer.append(output))

    def raw(self, place: Place, key: bytes | None, value: bytes | None) -> None:
        MemoryProducer(self.log).send(Append(place, key, value))

    def records(self, topic: str) -> list[Record]:
        """What a read_committed reader finds."""
        reader = MemoryReader(self.log, committed_only=True)
        for partition in range(self.log.partitions(topic)):
            reader.add(Place(topic, partition), 0)
        return reader.poll(100_000, 0)

    def events(self, topic: str) -> list[Any]:
        return [CODEC.decode(record.value) for record in self.records(topic)]

    def of_replies(self) -> dict[ReplyId, list[Any]]:
        """Every record of each reply, in order."""
        found: defaultdict[ReplyId, list[Any]] = defaultdict(list)
        for record in self.records(REPLIES):
            if reply := reply_of_key(record.key):
                found[reply].append(CODEC.decode(record.value))
        return found

    def replies(self) -> dict[ReplyId, Reply]:
        return {reply: folded(reply, events) for reply, events in self.of_replies().items()}


class IntakeCell(Cell):
    def __init__(self, tokenizer: ChatTokenizer) -> None:
        super().__init__(SIZES, Codec())
        self.models = {"tiny": Model(tokenizer, "main")}

    def intake(self, instance: str = "0") -> Runner:
        return self.runner(Intake(self.models, self.routes), instance)

    def post(self, *messages: MessagePosted) -> None:
        self.write(*(self.routes.message(message.user, message) for message in messages))

    def last_words(self) -> dict[str, Any]:
        return {reply: type(records[-1]) for reply, records in self.of_replies().items()}


def folded(reply: ReplyId, records: Iterable[Any]) -> Reply:
    seen = Reply(reply)
    for offset, record in enumerate(records):
        seen.apply(offset, record)
    return seen
