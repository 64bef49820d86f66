"""A user at the edges, down to the bytes: what HTTP answers, and a reply's frames over as many streams as it takes.

The edges are looked up anew for every request, since a stack that was started again has other ports.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
import uuid
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from schemas.ids import ReplyId
from tests.services.running import PATIENCE_S
from tests.stack import Stack

ENDS = frozenset({"finished", "stopped", "flagged", "failed", "shed"})
PING = b": ping\n"
_EVENT = re.compile(rb"^event: (.*)$", re.MULTILINE)
_ID = re.compile(rb"^id: (\d+)$", re.MULTILINE)
_DATA = re.compile(rb"^data: (.*)$", re.MULTILINE)


class Client:
    def __init__(self, stack: Stack, user: str = "alice") -> None:
        self.stack, self.user = stack, user
        headers = {"Authorization": f"Bearer {stack.keys[user]}"}
        self.http = httpx.Client(headers=headers, timeout=PATIENCE_S, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.http.close()

    def ask(self, method: str, path: str, edge: int = 0, **options: Any) -> httpx.Response:
        return self.http.request(method, self.stack.urls[edge] + path, **options)

    def post(
        self, conversation: str, text: str, edge: int = 0, key: str | None = None, **fields: Any
    ) -> httpx.Response:
        """One try to post a message."""
        headers = {"Idempotency-Key": key} if key else {}
        path = f"/v1/conversations/{conversation}/messages"
        return self.ask("POST", path, edge, json={"text": text, **fields}, headers=headers)

    def say(self, conversation: str, text: str, edge: int = 0, **fields: Any) -> ReplyId:
        """Posts under one Idempotency-Key, at each edge in turn, until one has taken it."""
        key, deadline = uuid.uuid4().hex, time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                answer = self.post(conversation, text, edge, key, **fields)
                if answer.status_code == 202:
                    return ReplyId(answer.json()["reply"])
                assert answer.status_code in (409, 503), answer.text
            edge = 1 - edge
            time.sleep(0.05)
        raise AssertionError(f"no edge took {text!r}")

    @contextlib.contextmanager
    def stream(self, reply: str, edge: int = 0, cursor: int | None = None) -> Iterator[Iterator[bytes]]:
        """The frames of one connection; none when the edge cannot serve it now."""
        headers = {} if cursor is None else {"Last-Event-ID": str(cursor)}
        with self.http.stream("GET", f"{self.stack.urls[edge]}/v1/replies/{reply}/events", headers=headers) as answer:
            assert answer.status_code in (200, 503), answer.read()
            yield frames_of(answer.iter_bytes() if answer.status_code == 200 else ())

    def follow(
        self, reply: str, edge: int = 0, cursor: int | None = None, into: list[bytes] | None = None
    ) -> list[bytes]:
        """All frames after `cursor` to the end, at the other edge whenever a stream breaks."""
        heard = [] if into is None else into
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError), self.stream(reply, edge, cursor) as frames:
                for frame in frames:
                    heard.append(frame)
                    cursor = cursor if (n := id_of(frame)) is None else n
                    if event_of(frame) in ENDS:
                        return heard
            edge = 1 - edge
            time.sleep(0.05)
        raise AssertionError(f"reply {reply} has no end after {cursor}")

    def reply(self, reply: str, edge: int = 0) -> dict[str, Any]:
        """The reply as JSON."""
        found: dict[str, Any] = self.ask("GET", f"/v1/replies/{reply}", edge).json()
        return found

    def messages(self, conversation: str, edge: int = 0) -> list[dict[str, Any]]:
        """The stored turns; none while there are none."""
        answer = self.ask("GET", f"/v1/conversations/{conversation}", edge)
        found: list[dict[str, Any]] = answer.json()["messages"] if answer.status_code == 200 else []
        return found

    def stop(self, reply: str, edge: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("POST", f"/v1/replies/{reply}/stop", edge).json()
        return found

    def gauge(self, name: str, edge: int = 0) -> float:
        """A value of the edge's /metrics."""
        text = self.ask("GET", "/metrics", edge).text
        return float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")))

    def connect(self, edge: int = 0) -> socket.socket:
        url = urlsplit(self.stack.urls[edge])
        assert url.hostname and url.port
        return socket.create_connection((url.hostname, url.port), timeout=PATIENCE_S)

    def head(self, path: str, *headers: bytes) -> bytes:
        """A GET as bytes, with header lines that no HTTP client would send."""
        own = [f"GET {path} HTTP/1.1".encode(), b"Host: edge"]
        return b"\r\n".join([*own, f"Authorization: Bearer {self.stack.keys[self.user]}".encode(), *headers, b"", b""])

    def raw_get(self, path: str, *headers: bytes) -> tuple[int, bytes]:
        """Status and the rest of the answer to such a GET."""
        with self.connect() as raw:
            raw.sendall(self.head(path, b"Connection: close", *headers))
            answer = b"".join(iter(lambda: raw.recv(65536), b""))
        return int(answer.split(b" ", 2)[1]), answer.partition(b"\r\n\r\n")[2]


def frames_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole SSE frames with their blank line; what an edge says between them is left out."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n\n")
        for frame in whole:
            yield frame.replace(PING, b"") + b"\n\n"


def event_of(frame: bytes) -> str:
    found = _EVENT.search(frame)
    assert found, frame
    return found[1].decode()


def id_of(frame: bytes) -> int | None:
    found = _ID.search(frame)
    return int(found[1]) if found else None


def ids_of(frames: Iterable[bytes]) -> list[int]:
    return [n for frame in frames if (n := id_of(frame)) is not None]


def data_of(frame: bytes) -> dict[str, Any]:
    found = _DATA.search(frame)
    assert found, frame
    data: dict[str, Any] = json.loads(found[1])
    return data


def text_of(frames: Iterable[bytes]) -> str:
    return "".join(data_of(frame)["text"] for frame in frames if event_of(frame) == "token")
