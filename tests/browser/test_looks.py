"""The page on a phone, in the dark, at rest; and what a screen reader finds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import Chat

PHONE = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}
WIDE = "a" * 200 + "\n\n| a | b | c |\n|---|---|---|\n| " + "x" * 80 + " | y | z |\n\n```\n" + "w" * 300 + "\n```"
CONTRAST = """(names) => {
    const style = getComputedStyle(document.documentElement);
    const light = (name) => {
        const hex = style.getPropertyValue(name).trim().slice(1);
        const parts = [0, 2, 4].map((n) => parseInt(hex.slice(n, n + 2), 16) / 255);
        const [r, g, b] = parts.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const [low, high] = names.map(light).sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
}"""


def test_on_a_phone_the_list_is_a_drawer(opened: Callable[..., Chat]) -> None:
    chat = opened(**PHONE)
    chat.ask("from a phone")
    link = chat.page.get_by_role("link", name="from a phone")
    expect(link).to_be_hidden()
    chat.page.get_by_role("button", name="Conversations", exact=True).tap()
    expect(link).to_be_visible()
    chat.page.keyboard.press("Escape")
    expect(link).to_be_hidden()
    expect(chat.page.get_by_role("button", name="Conversations", exact=True)).to_be_focused()


def test_on_a_phone_nothing_is_wider_than_the_screen(opened: Callable[..., Chat]) -> None:
    chat = opened(**PHONE)
    chat.ask(WIDE)
    assert chat.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert chat.evaluate("document.getElementById('scroller').scrollWidth <= innerWidth")
    assert chat.page.locator(".code pre").evaluate("(code) => code.scrollWidth > code.clientWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(opened: Callable[..., Chat], scheme: str) -> None:
    chat = opened(color_scheme=scheme)
    background = chat.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (sum(background) < 150) == (scheme == "dark")
    inks = "--ink", "--soft", "--accent", "--bad", "--warn"
    pairs = [(ink, paper) for ink in inks for paper in ("--paper", "--side")]
    pairs += [("--on-accent", "--accent"), ("--ink", "--bubble"), ("--paper", "--bad"), ("--soft", "--raised")]
    assert [(pair, ratio) for pair in pairs if (ratio := chat.evaluate(CONTRAST, list(pair))) < 4.5] == []


def test_nothing_moves_for_who_asked_for_less_motion(opened: Callable[..., Chat]) -> None:
    chat = opened(reduced_motion="reduce")
    chat.send(" ".join(["still"] * 100))
    chat.until_written("still still")
    assert chat.evaluate("document.getAnimations().length") == 0
    chat.until_state("finished")


def test_every_control_has_a_name_and_the_page_its_landmarks(chat: Chat) -> None:
    chat.ask("```\ncode\n```")
    unnamed = chat.page.locator("button:visible, input:visible, textarea:visible, select:visible").evaluate_all(
        """(all) => all.filter((one) => !(one.ariaLabel || one.innerText?.trim() || one.labels?.length))
            .map((one) => one.outerHTML)"""
    )
    assert unnamed == []
    expect(chat.page.get_by_role("main")).to_have_count(1)
    expect(chat.page.get_by_role("navigation", name="Conversations")).to_be_visible()
    expect(chat.page.get_by_role("heading", level=1)).to_have_count(1)


def test_code_is_copied_as_it_is(opened: Callable[..., Chat]) -> None:
    chat = opened(permissions=["clipboard-read", "clipboard-write"])
    chat.ask("```python\nif a < b:\n    print('<b>')\n```")
    chat.page.get_by_role("button", name="Copy this code").click()
    expect(chat.page.get_by_role("button", name="Copy this code")).to_have_text("Copied")
    assert chat.evaluate("navigator.clipboard.readText()") == "if a < b:\n    print('<b>')"
