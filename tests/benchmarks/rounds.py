"""One round of a measurement: a burst of tokens, and whoever hears it, each in a process of its own.

In: a running stack. Out: Rounds, when each token was sent and heard and what the server's CPU did meanwhile.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import psutil
from uuid_utils import uuid7

from infra.local.ports import free_ports
from infra.local.stack import get_status
from schemas.ids import ReplyId, mint_reply_id
from tests.benchmarks import bare, burst, listeners
from tests.stack import Stack
from topics.catalog import Sizes

USER = "alice"
SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Round:
    """(sent at, heard at) of each token, in nanoseconds, and the CPU seconds that the server took meanwhile.

    `began_ns`: when the server could begin, if that was not with the first token.
    """

    times: list[tuple[int, int]]
    server_cpu_s: float
    began_ns: int | None = None

    @cached_property
    def latencies_ms(self) -> list[float]:
        return sorted((heard - sent) / 1e6 for sent, heard in self.times)

    def latency_ms(self, share: float) -> float:
        return self.latencies_ms[min(len(self.times) - 1, int(len(self.times) * share))]

    @property
    def events_per_s(self) -> float:
        began_ns = self.began_ns or min(sent for sent, _ in self.times)
        return len(self.times) / ((max(heard for _, heard in self.times) - began_ns) / 1e9)

    @property
    def cpu_us_per_event(self) -> float:
        return self.server_cpu_s / len(self.times) * 1e6


class Worker:
    """A function in a process of its own, and the pipe by which it and this process take turns."""

    def __init__(self, run: Callable[..., None], *arguments: Any) -> None:
        self.steps, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=run, args=(*arguments, theirs), daemon=True)
        self.process.start()
        theirs.close()  # so that its death ends a wait

    def wait(self) -> Any:
        if not self.steps.poll(2 * listeners.PATIENCE_S):
            raise TimeoutError(f"{self.process.name} says nothing")
        return self.steps.recv()


class Rounds:
    """The rounds on one stack; the edge is its first."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._port = int(stack.urls[0].rsplit(":", 1)[1])
        self._key = bytes.fromhex((stack.folder / "cell.key").read_text().strip())
        self._homes = itertools.cycle(range(Sizes().replies // 2))
        rows = json.loads((stack.folder / "up.json").read_text())["processes"]
        self._edge = psutil.Process(next(row["pid"] for row in rows if row["name"] == "edge-0"))

    def clients(self, streams: int, rate: float, tokens: int) -> Round:
        """So many streams of the edge; `rate` tokens a second each, 0: as fast as it goes."""
        writer, replies = self._writer(streams, rate, tokens)
        gets = [self._events(reply) for reply in replies]
        return _heard(Worker(listeners.listen, self._port, gets), writer, self._edge)

    def ahead(self, streams: int, tokens: int) -> Round:
        """So many streams of the edge, which stands still until the log holds all: neither writing costs it anything,
        nor does it wait for anything."""
        writer, replies = self._writer(streams, 0, tokens)
        listener = Worker(listeners.listen, self._port, [self._events(reply) for reply in replies])
        listener.wait()
        self._edge.suspend()
        try:
            _written(writer)
        finally:
            before, began_ns = _cpu_s(self._edge), time.monotonic_ns()
            self._edge.resume()
        times = listener.wait()
        used = _cpu_s(self._edge) - before
        listener.process.join()
        return Round(times, used, began_ns)

    def raw(self, streams: int, rate: float, tokens: int) -> Round:
        """A consumer of the topic, with nothing behind it."""
        writer, _ = self._writer(streams, rate, tokens)
        return _heard(Worker(listeners.read_raw, self._stack.kafka, streams * tokens), writer, self._edge)

    def bare(self, streams: int, tokens: int) -> Round:
        """So many streams of a bare Starlette application."""
        [port] = free_ports(1)
        server = SPAWN.Process(target=bare.serve, args=(port,), daemon=True)
        server.start()
        try:
            while get_status(port, "/0") != 200:
                time.sleep(0.05)
            return _heard(
                Worker(listeners.listen, port, [self._get(f"/{tokens}")] * streams), None, psutil.Process(server.pid)
            )
        finally:
            server.terminate()
            server.join()

    def _writer(self, streams: int, rate: float, tokens: int) -> tuple[Worker, list[ReplyId]]:
        replies = [mint_reply_id(0, next(self._homes), uuid7().hex, self._key) for _ in range(streams)]
        writer = Worker(burst.run, self._stack.kafka, USER, replies, rate, tokens)
        writer.wait()
        return writer, replies

    def _events(self, reply: ReplyId) -> bytes:
        return self._get(f"/v1/replies/{reply}/events")

    def _get(self, path: str) -> bytes:
        key = self._stack.keys[USER]
        return f"GET {path} HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer {key}\r\n\r\n".encode()


def _heard(listener: Worker, writer: Worker | None, server: psutil.Process) -> Round:
    before = _cpu_s(server)
    listener.wait()
    if writer is not None:
        before = _cpu_s(server)
        writer.steps.send("go")
    times = listener.wait()
    used = _cpu_s(server) - before
    if writer is not None:
        _end(writer)
    listener.process.join()
    return Round(times, used)


def _written(writer: Worker) -> None:
    """Has all written, and waits until it is."""
    writer.steps.send("go")
    _end(writer)


def _end(writer: Worker) -> None:
    writer.wait()
    writer.process.join()


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def cores() -> str:
    """What the figures were measured on."""
    load = psutil.getloadavg()[0]
    return f"{psutil.cpu_count()} cores, load {load:.1f}, {time.strftime('%Y-%m-%d')}"
