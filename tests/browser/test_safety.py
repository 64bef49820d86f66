"""What a model writes is only ever text: no script of it runs, nothing of it is loaded, and no link leads astray."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.chromium import Chat
from tests.services.running import MendedStack

ATTACKS = (
    "<script>window.hurt = 1</script>",
    "<img src=x onerror=window.hurt=1>",
    '<svg onload="window.hurt=1"><script>window.hurt=1</script></svg>',
    "<iframe srcdoc='<script>parent.hurt=1</script>'></iframe>",
    "[click](javascript:window.hurt=1) <javascript:window.hurt=1>",
    "[click](JaVaScRiPt:window.hurt=1) [data](data:text/html,<script>window.hurt=1</script>)",
    "[click](java\tscript:window.hurt=1) [x](vbscript:x) [rel](/page/page.js)",
    '[x](https://example.org/" onmouseover="window.hurt=1)',
    "![image](https://example.org/x.png)",
    "```<script>window.hurt=1</script>\n</code></pre><script>window.hurt=1</script>\n```",
    "| <b onclick=window.hurt=1>a</b> | b |\n|---|---|\n| <style>*{display:none}</style> | </table> |",
    "`</code><script>window.hurt=1</script>`",
)
ALLOWED = {
    "a", "blockquote", "br", "button", "code", "del", "div", "em", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p",
    "pre", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {"class", "href", "rel", "target", "type", "tabindex", "start", "aria-label"}


@pytest.fixture
def attacked(chat: Chat) -> Chat:
    chat.evaluate("window.hurt = 0")
    chat.ask("\n\n".join(ATTACKS))
    return chat


def test_no_script_of_a_reply_runs(attacked: Chat) -> None:
    for element in attacked.text.locator("a").all():
        element.hover()
    assert attacked.evaluate("window.hurt") == 0
    assert "<script>window.hurt = 1</script>" in attacked.text.inner_text()
    assert attacked.page.locator("#conversations, #title").first.locator("script, img").count() == 0


def test_a_reply_is_made_of_known_elements_and_attributes_only(attacked: Chat) -> None:
    found = attacked.text.evaluate(
        "(root) => [...root.querySelectorAll('*')].map((one) => [one.localName, one.getAttributeNames()])"
    )
    assert {name for name, _ in found} <= ALLOWED
    assert {name for _, names in found for name in names} <= ATTRIBUTES


def test_links_lead_to_web_pages_and_mail_only(attacked: Chat) -> None:
    attacked.ask(
        "[web](https://example.org/a_(b)?c=d#e) [mail](mailto:a@example.org) [js](javascript:1) https://x.org/."
    )
    links = attacked.text.locator("a")
    assert links.evaluate_all("(all) => all.map((one) => one.getAttribute('href'))") == [
        "https://example.org/a_(b)?c=d#e",
        "mailto:a@example.org",
        "https://x.org/",
    ]
    assert set(links.evaluate_all("(all) => all.map((one) => one.rel)")) == {"noopener noreferrer"}


def test_a_saved_attack_is_as_harmless_as_one_that_streams(attacked: Chat) -> None:
    shown = attacked.text.inner_html()
    attacked.page.reload()
    attacked.until_state("finished")
    assert attacked.text.inner_html() == shown
    assert attacked.evaluate("window.hurt") is None


def test_the_policy_lets_nothing_in_but_the_pages_own_files(slow: MendedStack) -> None:
    answer = httpx.get(slow.urls[0], trust_env=False)
    policy = dict(part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert set(slow.urls) < set(policy["connect-src"].split())
    assert "style=" not in answer.text
    assert "<script>" not in answer.text


def test_markup_cannot_be_made_of_a_string_even_by_mistake(chat: Chat) -> None:
    with pytest.raises(Exception, match="TrustedHTML"):
        chat.evaluate("document.getElementById('note').innerHTML = '<b>x</b>'")
    expect(chat.page.locator("#note b")).to_have_count(0)
    chat.complaints.clear()
