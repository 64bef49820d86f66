"""A chat client: one conversation over the public HTTP API, resumed on another edge when a stream breaks.

In: edges, an API key, texts. Out: the reply's text as it comes. A message is posted under one
Idempotency-Key however often it is sent, and the last event id is the cursor, so nothing is shown twice.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx
import httpx_sse

ENDS = frozenset({"finished", "stopped", "flagged", "failed", "shed"})
PATIENCE = 30.0
PAUSE = 0.3


class ChatError(Exception):
    """The reply was refused or broken off; the message is the server's. A retry may help when it says so."""


class Chat:
    def __init__(self, edges: tuple[str, ...], key: str, conversation: str, options: Mapping[str, Any]) -> None:
        """`options` go into every message's body, such as model, max_tokens or temperature."""
        self.edges, self.conversation, self.options = edges, conversation, options
        headers = {"Authorization": f"Bearer {key}"}
        # A stream is silent while its reply waits in the queue; the keep-alive comments bound the silence.
        self._http = httpx.Client(headers=headers, timeout=httpx.Timeout(30.0, connect=2.0), trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.close()

    def say(self, text: str, show: Callable[[str], None], note: Callable[[str], None]) -> str:
        """Posts the text and shows the reply as it comes, with a note of what its user would not expect; returns how it
        ended. Raises ChatError.

        An interrupt stops the reply on the server, then goes on to the caller.
        """
        reply = self._post(text)
        try:
            return self._follow(reply, show, note)
        except KeyboardInterrupt:
            self._stop(reply)
            raise

    def _stop(self, reply: str) -> None:
        """Asks each edge once, the first that answers is enough. Raises ChatError if none does."""
        for edge in self.edges:
            try:
                checked(self._http.post(f"{edge}/v1/replies/{reply}/stop"))
                return
            except httpx.TransportError:
                continue
        raise ChatError(f"no edge takes the stop of reply {reply}, which goes on: {', '.join(self.edges)}")

    def _post(self, text: str) -> str:
        body = {**self.options, "text": text}
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        gave_up, refusal = time.monotonic() + PATIENCE, "it cannot be reached"
        for edge in self._edges():
            if time.monotonic() > gave_up:
                break
            try:
                url = f"{edge}/v1/conversations/{self.conversation}/messages"
                answer = self._http.post(url, json=body, headers=headers)
            except httpx.TransportError:
                continue
            if answer.status_code != 503:
                return str(checked(answer)["reply"])
            refusal = message_of(answer.json())
        raise ChatError(f"no edge takes the message: {', '.join(self.edges)}: {refusal}")

    def _follow(self, reply: str, show: Callable[[str], None], note: Callable[[str], None]) -> str:
        cursor, gave_up = "", time.monotonic() + PATIENCE
        for edge in self._edges():
            if time.monotonic() > gave_up:
                break
            try:
                for event in self._events(f"{edge}/v1/replies/{reply}/events", cursor):
                    cursor, gave_up = event.id or cursor, time.monotonic() + PATIENCE
                    if event.event == "accepted":
                        note(instead(event.json()))
                    elif event.event == "token":
                        show(event.json()["text"])
                    elif event.event == "error":
                        raise ChatError(message_of(event.json()))
                    elif event.event in ENDS:
                        show("\n")
                        return ended(event.event, event.json())
            except (httpx.TransportError, httpx_sse.SSEError):
                continue
        where = f"GET /v1/replies/{reply}/events"
        raise ChatError(f"the stream broke and no edge continues it; the reply goes on, and {where} has the rest")

    def _events(self, url: str, cursor: str) -> Iterator[httpx_sse.ServerSentEvent]:
        headers = {"Last-Event-ID": cursor} if cursor else {}
        with httpx_sse.connect_sse(self._http, "GET", url, headers=headers) as source:
            if source.response.status_code not in (200, 503):
                source.response.read()
                checked(source.response)
            if source.response.status_code == 200:
                yield from source.iter_sse()

    def _edges(self) -> Iterator[str]:
        """The edges in turn without end, with a pause after each round."""
        while True:
            yield from self.edges
            time.sleep(PAUSE)


def checked(answer: httpx.Response) -> dict[str, Any]:
    """The answer's JSON. Raises ChatError with the server's message when it is a refusal."""
    try:
        body: dict[str, Any] = answer.json()
    except json.JSONDecodeError:
        body = {}
    if answer.status_code >= 400:
        raise ChatError(f"{message_of(body)} (HTTP {answer.status_code})")
    return body


def message_of(body: dict[str, Any]) -> str:
    return str(body.get("error", {}).get("message", "the server gave no reason"))


def instead(accepted: Mapping[str, Any]) -> str:
    """Which model answers, where it is not the one that was asked; empty: it is."""
    asked = accepted.get("asked_model")
    return f"the limit of {asked} is reached: {accepted['model']} answers" if asked else ""


def ended(how: str, body: dict[str, Any]) -> str:
    """The end of a reply: `finished`, `stopped`, `length` if it was cut. Raises ChatError for one that broke."""
    if body.get("finish_reason") == "length":
        return "length"
    if how in ("failed", "shed"):
        raise ChatError(f"the reply has {how}: {body.get('reason', 'no reason given')}")
    return how
