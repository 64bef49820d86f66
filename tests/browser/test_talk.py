"""Signing in and out, sending, watching a reply grow, stopping it; with the mouse and with the keyboard alone."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.chromium import Chat, counted
from tests.services.client import Client
from tests.services.running import MendedStack


def test_a_reply_is_shown_while_it_is_written(chat: Chat) -> None:
    chat.send(counted(60))
    chat.until_written("n3 ")
    expect(chat.text).to_have_attribute("aria-busy", "true")
    assert "n60" not in chat.text.inner_text()
    chat.until_state("finished")
    assert chat.text.inner_text() == counted(60)
    expect(chat.text).to_have_attribute("aria-busy", "false")


def test_an_unknown_key_is_refused_where_it_was_typed(chat: Chat) -> None:
    chat.page.get_by_role("button", name="Sign out").click()
    chat.page.get_by_label("API key").fill("nobody's")
    chat.page.keyboard.press("Enter")
    expect(chat.page.locator("#door-error")).to_have_text("This key is not known. Check it and try again.")
    chat.sign_in()


def test_after_signing_out_nothing_is_left_in_the_browser(chat: Chat) -> None:
    chat.ask("a secret")
    chat.page.get_by_role("button", name="Sign out").click()
    expect(chat.page.get_by_label("API key")).to_be_visible()
    assert chat.evaluate("sessionStorage.length + localStorage.length") == 0
    assert chat.context.cookies() == []


def test_a_stopped_reply_keeps_what_was_written(chat: Chat) -> None:
    chat.send(counted(300))
    chat.until_written("n3 ")
    chat.page.get_by_role("button", name="Stop the reply").click()
    chat.until_state("stopped")
    expect(chat.replies.last.locator(".words")).to_have_text("Stopped")
    assert counted(300).startswith(chat.text.inner_text())
    chat.ask("and now this")
    assert chat.text.inner_text() == "and now this"


def test_everything_can_be_done_with_the_keyboard(chat: Chat) -> None:
    expect(chat.field).to_be_focused()
    chat.page.keyboard.type("first")
    chat.page.keyboard.press("Shift+Enter")
    chat.page.keyboard.type(counted(300))
    chat.page.keyboard.press("Enter")
    expect(chat.sent).to_have_text(f"first\n{counted(300)}")
    chat.until_written("n3 ")
    chat.page.keyboard.press("Escape")
    chat.until_state("stopped")
    expect(chat.field).to_be_focused()
    chat.page.keyboard.press("Shift+Tab")
    assert chat.evaluate("document.activeElement.matches(':focus-visible')")


def test_a_reader_who_listens_hears_each_block_once(chat: Chat) -> None:
    chat.evaluate(
        """() => {
            window.said = [];
            const added = (change) => [...change.addedNodes].map((node) => node.textContent);
            const observer = new MutationObserver((changes) => said.push(...changes.flatMap(added)));
            observer.observe(document.getElementById("announcer"), { childList: true });
        }"""
    )
    chat.ask("one and two\n\nthree and four")
    said = chat.evaluate("window.said")
    assert [words for words in said if words in ("one and two", "three and four")] == ["one and two", "three and four"]
    assert said[-1] == "The reply is complete"
    assert len(said) <= 6


def test_a_stop_in_one_tab_is_seen_in_the_other(chat: Chat) -> None:
    chat.send(counted(300))
    chat.until_written("n3 ")
    other = chat.other_tab(chat.page.url)
    other.until_written("n3 ")
    other.page.get_by_role("button", name="Stop the reply").click()
    other.until_state("stopped")
    chat.until_state("stopped")
    assert chat.text.inner_text() == other.text.inner_text()


def test_a_message_beside_a_reply_that_runs_elsewhere_is_refused_with_a_way_to_it(
    chat: Chat, slow: MendedStack
) -> None:
    chat.ask("first")
    with Client(slow) as client:
        reply = client.say(chat.page.url.rsplit("/", 1)[1], counted(400))
        chat.send("second")
        chat.until_state("refused")
        chat.page.get_by_role("button", name="Show that reply").click()
        chat.until_written("n3 ")
        expect(chat.field).to_have_value("second")
        client.stop(reply)
    chat.until_state("stopped")


def test_a_session_that_is_over_asks_for_the_key_and_goes_on(opened: Callable[..., Chat]) -> None:
    chat = opened()
    chat.ask("before")
    chat.context.clear_cookies()
    chat.send("after")
    expect(chat.page.locator("#door-words")).to_contain_text("session has ended")
    chat.page.get_by_label("API key").fill(chat.key)
    chat.page.keyboard.press("Enter")
    chat.page.get_by_role("button", name="Try again").click()
    chat.until_state("finished")
    assert chat.text.inner_text() == "after"
