"""A real Chromium, and the chat page in it as a user sees it: what is typed, what is shown. Waits for what will be.

In: a stack's edges and a key. Out: a `Chat` in a browser context of its own, with its own cookies and storage.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from tests.services.running import until

PATIENCE_MS = 90_000
PAGE_FOLDER = Path(__file__).parent.parent.parent / "edge" / "page"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
MISSING = "no Chromium found; install Debian's package `chromium` (apt-get install chromium) for the tests of the page"

expect.set_options(timeout=PATIENCE_MS)


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextlib.contextmanager
def running_chromium(path: str) -> Iterator[Browser]:
    """Chromium's own sandbox does not work for root."""
    flags = [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else [*FLAGS]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        try:
            yield browser
        finally:
            browser.close()


class Chat:
    """The page in one tab. `complaints` are the errors that scripts raised and what the page's policy refused."""

    def __init__(self, context: BrowserContext, url: str, key: str) -> None:
        self.context, self.url, self.key = context, url, key
        self.complaints: list[str] = []
        self.page = self._tab()

    def _tab(self) -> Page:
        page = self.context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda said: self.complaints.append(said.text) if "Policy" in said.text else None)
        return page

    def sign_in(self) -> Chat:
        self.page.goto(self.url)
        self.page.get_by_label("API key").fill(self.key)
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.field).to_be_visible()
        return self

    def other_tab(self, address: str | None = None) -> Chat:
        """The same user in a second tab, which opens at `address`."""
        other = Chat(self.context, self.url, self.key)
        other.page.goto(address or self.url)
        expect(other.field).to_be_visible()
        return other

    @property
    def field(self) -> Locator:
        return self.page.get_by_role("textbox", name="Message")

    @property
    def sent(self) -> Locator:
        return self.page.locator(".message.user .text")

    @property
    def replies(self) -> Locator:
        return self.page.locator(".message.assistant")

    @property
    def text(self) -> Locator:
        """The newest reply's text."""
        return self.replies.last.locator(".text")

    @property
    def rows(self) -> Locator:
        return self.page.get_by_role("navigation").locator(".row")

    def send(self, text: str) -> None:
        self.field.fill(text)
        self.field.press("Enter")

    def until_state(self, state: str) -> None:
        """Waits until the newest reply is in that state."""
        expect(self.replies.last).to_have_attribute("data-state", state)

    def until_written(self, words: str) -> None:
        expect(self.text).to_contain_text(words)

    def ask(self, text: str) -> None:
        """Sends, and waits for the whole answer."""
        self.send(text)
        expect(self.sent.last).to_have_text(text)
        self.until_state("finished")

    def until(self, holds: Callable[[], object]) -> None:
        """Waits for what the page alone cannot show."""
        until(holds, lambda: self.page.wait_for_timeout(50))

    def evaluate(self, script: str, argument: Any = None) -> Any:
        return self.page.evaluate(script, argument)


def counted(last: int) -> str:
    """A text in which a lost, doubled or moved token shows."""
    return " ".join(f"n{n}" for n in range(1, last + 1))
