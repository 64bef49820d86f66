"""A Chromium and a slow Laneway for the tests of the chat page; without one they are skipped, and say what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.services.running import MendedStack

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.chromium import Chat

USERS = ("alice", "bob", "carol")
SLOW = {"LANEWAY_SCRIPTED_RATE": "50", "LANEWAY_MAX_RUNNING": "8"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ends with its module: its event loop would be in the way of other tests' loops."""
    from tests.browser.chromium import MISSING, find_chromium, running_chromium

    path = find_chromium()
    if path is None:
        pytest.skip(MISSING)
    with running_chromium(path) as running:
        yield running


@pytest.fixture(scope="package")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MendedStack]:
    """50 tokens/s, so that a stream can be cut in the middle."""
    with MendedStack(tmp_path_factory.mktemp("slow"), SLOW, USERS) as running:
        yield running


@pytest.fixture
def opened(browser: Browser, slow: MendedStack) -> Iterator[Callable[..., Chat]]:
    """Opens the page signed in, each time as in another browser; at the end no script may have failed anywhere."""
    from tests.browser.chromium import Chat

    chats: list[Chat] = []

    def open_chat(user: str = "alice", edge: int = 0, **options: Any) -> Chat:
        context = browser.new_context(**options)
        chats.append(Chat(context, slow.urls[edge], slow.keys[user]))
        return chats[-1].sign_in()

    yield open_chat
    for chat in chats:
        chat.context.close()
    assert [complaint for chat in chats for complaint in chat.complaints] == []


@pytest.fixture
def chat(opened: Callable[..., Chat]) -> Chat:
    return opened()
