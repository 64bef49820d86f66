"""A whole edge for tests: uvicorn on a free port in a thread, a log in memory, and a pipeline that a test scripts.

In: what the pipeline answers to each message. Out: an HTTP client, and the records that the edge wrote.
"""

from __future__ import annotations

import hashlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import httpx_sse
from uuid_utils import uuid7

from edge.config import EdgeConfig
from edge.edge import Edge, Surroundings
from edge.main import EdgeProcess
from schemas import reply_records as r
from schemas.codec import Codec
from schemas.events import MessagePosted, Origin, pack_ids
from schemas.ids import Incarnation, ReplyId, assistant_message_id, mint_reply_id, user_message_id
from schemas.quota_records import UsageAsked
from schemas.reply import Record
from topics.catalog import EDGES, MESSAGES, REPLIES, SCHEMAS, TURNS, Sizes
from topics.errors import Unavailable
from topics.log import HOLD_MS, Place
from topics.log import Record as LogRecord
from topics.memory import MemoryLog, MemoryReader
from topics.outputs import Encoder, Routes, reply_of_key
from topics.store.contract import SavedAt
from topics.store.sqlite import SqliteStore

SIZES = Sizes(users=4, replies=4)
CELL_KEY = "5a" * 16
PATIENCE_S = 120.0  # a machine that does much else is slow, not wrong
CODEC = Codec()
REPLICA = Incarnation("replica-1")
Script = Callable[[MessagePosted], Iterable[Record]]


def accepted(posted: MessagePosted, *, checked: bool = False) -> r.Accepted:
    return r.Accepted(
        user=posted.user,
        account=posted.account,
        plan=posted.plan,
        conversation=posted.conversation,
        user_message=user_message_id(posted.reply),
        assistant_message=assistant_message_id(posted.reply),
        stored=True,
        model=posted.model,
        pool="main",
        tier="free",
        prompt_tokens=7,
        seed=posted.sampling.seed,
        deadline_ms=posted.deadline_ms,
        on_disconnect=posted.on_disconnect,
        checked=checked,
        tokenizer="t",
    )


def started(attempt: int = 1) -> r.Started:
    return r.Started(attempt, "main/0", REPLICA, "f", Origin("lanes.main.free", 0, 0), 0)


def tokens(first: int, *texts: str) -> r.Tokens:
    return r.Tokens(1, REPLICA, first, pack_ids(range(first, first + len(texts))), texts)


def finished(count: int) -> r.Finished:
    return r.Finished(1, REPLICA, "stop", count)


def three_tokens(posted: MessagePosted) -> list[Record]:
    return [accepted(posted), started(), tokens(1, "Hel", ""), tokens(3, "lo"), finished(3)]


def no_limits(asked: UsageAsked) -> list[Record]:
    return [r.UsageTold(asked.user, asked.plan, "UTC", ())]


class BreakableLog(MemoryLog):
    """`lost`: nothing can be read any more. `past_lost`: a past cannot be read. `frozen`: no read returns."""

    lost = past_lost = frozen = False

    def reader(self, *, committed_only: bool = False, hold_ms: int = HOLD_MS) -> MemoryReader:
        return BreakableReader(self, committed_only)


class BreakableReader(MemoryReader):
    def __init__(self, log: BreakableLog, committed_only: bool) -> None:
        super().__init__(log, committed_only)
        self._breakable = log

    def poll(self, limit: int, timeout_s: float) -> list[LogRecord]:
        if self._breakable.lost:
            raise Unavailable("the log is lost")
        if self._breakable.frozen:
            time.sleep(timeout_s)
            return []
        return super().poll(limit, timeout_s)

    def end(self, place: Place) -> int:
        if self._breakable.past_lost:
            raise Unavailable("the past is lost")
        return super().end(place)


class RunningEdge:
    """`script` says what the pipeline writes when it reads a message; `write` adds more to any reply.

    What is to become of a conversation is in `changes`, and in the store if the pipeline `carries_out`.
    """

    def __init__(self, folder: Path, script: Script = three_tokens, **settings: Any) -> None:
        self.keys = folder / "keys.json"
        write_keys(self.keys, {"alice-key": "alice", "bob-key": "bob"})
        topics = {MESSAGES: SIZES.users, TURNS: SIZES.users, REPLIES: SIZES.replies, EDGES: 1, SCHEMAS: 1}
        self.log = BreakableLog(topics, lambda: time.time_ns() // 1_000_000)
        self.store = SqliteStore(folder / "store.sqlite")
        self.script = script
        self.told: Callable[[UsageAsked], Iterable[Record]] = no_limits
        self.posted: list[MessagePosted] = []
        self.changes: list[Any] = []
        self.carries_out = True
        config = EdgeConfig(keys=self.keys, cell_key=CELL_KEY, drain=0.0, models=("m1", "m2"))
        self.process = EdgeProcess(
            replace(config, **settings), Surroundings(self.log, self.store, SIZES, CODEC), port=0
        )
        self._routes = Routes(SIZES)
        self._encoder = Encoder(CODEC, SIZES, Incarnation("pipeline"))
        self._producer = self.log.producer()
        self._reader = MemoryReader(self.log, committed_only=False)
        for partition in range(SIZES.users):
            self._reader.add(Place(MESSAGES, partition), 0)
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self.process.server.run), threading.Thread(target=self._pipeline)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        wait_for(lambda: self.process.server.started)
        [server] = self.process.server.servers
        self.port: int = server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.server.should_exit = True
        self.join()
        self._ended.set()
        self._threads[1].join()
        self.store.close()

    def signal(self) -> None:
        """What SIGTERM does to an edge that runs in a process of its own."""
        self.process.server.servers[0].get_loop().call_soon_threadsafe(
            self.process.server.handle_exit, signal.SIGTERM, None
        )

    def join(self) -> None:
        """Waits until the edge has ended."""
        self._threads[0].join()

    @property
    def inner(self) -> Edge:
        assert self.process.edge is not None
        return self.process.edge

    def client(self, key: str | None = "alice-key") -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False, verify=False, timeout=PATIENCE_S)

    def post(self, text: str = "hello", conversation: str = "c1", **headers: str) -> httpx.Response:
        with self.client() as client:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return client.post(f"/v1/conversations/{conversation}/messages", json={"text": text}, headers=named)

    def reply(self, conversation: str = "c1") -> str:
        return str(self.post(conversation=conversation).json()["reply"])

    def mint(self, partition: int = 0, age_ms: int = 0) -> ReplyId:
        """An id as another edge of the cell would mint it, or has minted it so long ago."""
        name = uuid7().hex
        created = int(name[:12], 16) - age_ms
        return mint_reply_id(0, partition, f"{created:012x}{name[12:]}", bytes.fromhex(CELL_KEY))

    def write(self, reply: str, *records: Record) -> None:
        for record in records:
            self._producer.send(self._encoder.append(self._routes.reply(ReplyId(reply), record)))

    def records(self, reply: str) -> list[Any]:
        """All records of a reply in the log, in order."""
        return [event for name, event in self._read(REPLIES) if name == reply]

    def messages(self) -> list[Any]:
        """All that has been posted, whether the pipeline has read it or not."""
        return [event for _, event in self._read(MESSAGES)]

    def beats(self) -> list[Any]:
        return [event for _, event in self._read(EDGES)]

    def _read(self, topic: str) -> list[tuple[str | None, Any]]:
        found: list[tuple[str | None, Any]] = []
        reader = MemoryReader(self.log, committed_only=False)
        for partition in range(self.log.partitions(topic)):
            reader.add(Place(topic, partition), 0)
        while records := reader.poll(1000, 0):
            found += [(reply_of_key(record.key), CODEC.decode(record.value)) for record in records]
        return found

    def _pipeline(self) -> None:
        while not self._ended.is_set():
            for record in self._reader.poll(100, 0.05):
                event = CODEC.decode(record.value)
                if isinstance(event, MessagePosted):
                    self.posted.append(event)
                    self.write(event.reply, *self.script(event))
                elif isinstance(event, UsageAsked):
                    self.write(event.reply, *self.told(event))
                else:
                    self.changes.append(event)
                    if self.carries_out:
                        self.store.save([SavedAt(record.offset, replace(event, at_ms=record.timestamp_ms))])


def write_keys(path: Path, users: Mapping[str, str]) -> None:
    entries = [
        {"sha256": hashlib.sha256(key.encode()).hexdigest(), "user": user, "account": user, "plan": "free"}
        for key, user in users.items()
    ]
    path.write_text(json.dumps({"keys": entries}))


def wait_for(holds: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    """Waits until it holds; a test fails by this only when it never would."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


def events(client: httpx.Client, reply: str, cursor: int | None = None) -> Iterator[httpx_sse.ServerSentEvent]:
    headers = {} if cursor is None else {"Last-Event-ID": str(cursor)}
    with httpx_sse.connect_sse(client, "GET", f"/v1/replies/{reply}/events", headers=headers) as source:
        yield from source.iter_sse()
