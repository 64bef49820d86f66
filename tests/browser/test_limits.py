"""What the page says of limits: that another model answers, and when to come again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from schemas.reply_records import Rejected
from tests.browser.chromium import Chat
from tests.unit.edge.running_edge import RunningEdge, accepted, finished, started, tokens


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[RunningEdge]:
    with RunningEdge(tmp_path) as running:
        yield running


@pytest.fixture
def chat(browser: Browser, edge: RunningEdge) -> Iterator[Chat]:
    context = browser.new_context()
    yield Chat(context, edge.url, "alice-key").sign_in()
    context.close()


def test_that_the_mini_model_answers_is_said_above_the_reply(chat: Chat, edge: RunningEdge) -> None:
    edge.script = lambda p: [
        replace(accepted(p), model="m2", asked_model="m1"),
        started(),
        tokens(1, "Hi"),
        finished(1),
    ]
    chat.ask("hello")
    expect(chat.replies.last.locator(".aside")).to_have_text("The limit of m1 is reached, so m2 answers")
    expect(chat.text).to_have_text("Hi")
    edge.script = lambda p: [accepted(p), started(), tokens(1, "Hi"), finished(1)]
    chat.ask("hello again")
    expect(chat.replies.last.locator(".aside")).to_be_hidden()


def test_past_every_limit_the_page_says_when_to_try_again(chat: Chat, edge: RunningEdge) -> None:
    edge.script = lambda _: [Rejected("quota", "20 requests are used", 90_000)]
    chat.send("hello")
    chat.until_state("refused")
    expect(chat.replies.last.locator(".words")).to_have_text("20 requests are used. Try again in 90 s.")
    expect(chat.replies.last.get_by_role("button")).to_be_disabled()
