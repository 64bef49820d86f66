"""The list of conversations: opened, found by address, paged, renamed, deleted."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.chromium import Chat


def test_a_conversation_is_opened_from_the_list_and_by_its_address(chat: Chat) -> None:
    chat.ask("about apples")
    apples = chat.page.url
    chat.page.get_by_role("button", name="New conversation").click()
    chat.ask("about pears")
    chat.page.get_by_role("link", name="about apples").click()
    expect(chat.sent).to_have_text(["about apples"])
    assert chat.page.url == apples
    chat.page.go_back()
    expect(chat.sent).to_have_text(["about pears"])
    chat.page.goto(apples)
    expect(chat.page.get_by_role("heading", level=1)).to_have_text("about apples")


def test_a_renamed_conversation_keeps_its_title(chat: Chat) -> None:
    chat.ask("to be renamed")
    chat.page.get_by_role("button", name="Rename to be renamed").click()
    field = chat.page.get_by_role("textbox", name="New title")
    field.fill("a better name")
    field.press("Enter")
    expect(chat.page.get_by_role("heading", level=1)).to_have_text("a better name")
    expect(chat.page.get_by_role("button", name="Rename a better name")).to_be_focused()

    def listed() -> bool:
        chat.page.reload()
        expect(chat.rows.first).to_be_visible()
        return chat.page.get_by_role("link", name="a better name").count() == 1

    chat.until(listed)


def test_a_deleted_conversation_is_gone_everywhere(chat: Chat) -> None:
    chat.ask("to be deleted")
    address = chat.page.url
    chat.page.get_by_role("button", name="Delete to be deleted").click()
    chat.page.get_by_role("button", name="Delete", exact=True).click()
    expect(chat.page.get_by_role("link", name="to be deleted")).to_have_count(0)
    expect(chat.page.get_by_role("heading", level=1)).to_have_text("New conversation")

    def forgotten() -> bool:
        chat.page.goto(address)
        chat.page.reload()
        expect(chat.rows.first.or_(chat.page.locator("#list-note:not(:empty)"))).to_be_visible()
        return chat.sent.count() == 0 and chat.page.get_by_role("link", name="to be deleted").count() == 0

    chat.until(forgotten)


def test_keeping_a_conversation_deletes_nothing(chat: Chat) -> None:
    chat.ask("to be kept")
    chat.page.get_by_role("button", name="Delete to be kept").click()
    chat.page.keyboard.press("Escape")
    expect(chat.page.get_by_role("dialog")).to_have_count(0)
    expect(chat.page.get_by_role("link", name="to be kept")).to_be_visible()


def test_a_long_list_is_read_a_page_at_a_time(opened: Callable[..., Chat]) -> None:
    chat = opened("carol")
    for n in range(32):
        chat.evaluate("(n) => location.hash = `c/many-${n}`", n)
        expect(chat.page.locator("#note")).to_contain_text("no such conversation")
        chat.ask(f"number {n} of many")
    chat.page.reload()
    expect(chat.rows).to_have_count(30)
    chat.page.get_by_role("button", name="Show older").click()
    expect(chat.rows).to_have_count(32)
    expect(chat.page.get_by_role("button", name="Show older")).to_be_hidden()


def test_nobody_sees_anothers_conversations(opened: Callable[..., Chat]) -> None:
    chat, other = opened(), opened("bob")
    chat.ask("for my eyes only")
    other.page.goto(chat.page.url)
    other.page.reload()
    expect(other.page.locator("#note")).to_contain_text("no such conversation")
    assert other.page.get_by_text("for my eyes only").count() == 0
