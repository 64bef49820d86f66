"""Short ways to write what a quota ledger is asked and told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from schemas.events import ReplySettled
from schemas.ids import ConversationId, UserId
from streams.quota import Request
from tests.unit.streams.staged import T0, reply_id

T = T0
Item = TypeVar("Item")


def request(n: int = 1, input: int = 10, asked: int = 50, most: int = 1024, cached_percent: int = 100) -> Request:
    return Request(reply_id(n), input, asked, most, cached_percent)


def end(n: int, state: str = "finished", prompt: int = 10, cached: int = 0, completion: int = 5) -> ReplySettled:
    return ReplySettled(UserId("alice"), ConversationId("c"), reply_id(n), state, prompt, cached, completion, turn=None)


def only(items: Sequence[Item]) -> Item:
    [item] = items
    return item
