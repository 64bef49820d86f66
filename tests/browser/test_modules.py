"""The page's own parsers, in the browser that runs them: event streams, and Markdown as it grows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route

from tests.browser.chromium import PAGE_FOLDER

ORIGIN = "http://page.test"
STREAM = (
    "\ufeff: a comment\r\nevent: token\r\nid: 1\r\ndata: {\"text\":\"a\"}\r\n\r\n"
    "data:first\ndata: second\ndata\n\nretry: 500\rid: 2\rdata: é€😀\r\rid: no\0pe\ndata:x\n\n"
    "event: lonely\n\nid\ndata: last\n\ndata: never ended"
)  # fmt: skip
EVENTS = [
    ["token", '{"text":"a"}', "1"],
    ["message", "first\nsecond\n", "1"],
    ["message", "é€😀", "2"],
    ["message", "x", "2"],
    ["message", "last", ""],
]
READ = """async (chunks) => {
    const { EventParser, eventsOf } = await import("/sse.js");
    const parser = new EventParser();
    const fill = (to) => { chunks.forEach((one) => to.enqueue(new Uint8Array(one))); to.close(); };
    const body = new ReadableStream({ start: fill });
    const found = [];
    for await (const { type, data, id } of eventsOf(body, parser)) found.push([type, data, id]);
    return [found, parser.retryMs];
}"""
SHOW = """async (texts) => {
    const { MarkdownView } = await import("/markdown_view.js");
    const place = document.createElement("div");
    const said = [];
    const view = new MarkdownView(place, (words) => said.push(words));
    for (const text of texts) { view.push(text); view.draw(); }
    view.end();
    return [place.innerHTML, said];
}"""
DOCUMENT = """# One *two*

A paragraph with **bold _and_ italic**, `code *x*`, ~~gone~~ and snake_case_words.
Its second line | has a bar.

- tight
  - nested
    still nested

  a paragraph of the item
- last

2. two
3. three
text that is lazy
```js
if (a < b) {
```
| a | b \\| c |
|:-:|--:|
| 1 | `2` |
> quote
> - in it
***
1
2. not a list
~~~
open to the end
- x"""


def serve(route: Route) -> None:
    name = route.request.url.removeprefix(ORIGIN + "/")
    if name:
        route.fulfill(path=PAGE_FOLDER / name, content_type="text/javascript")
    else:
        route.fulfill(body="<!doctype html><title>modules</title>", content_type="text/html")


@pytest.fixture(scope="module")
def modules(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    page.route("**/*", serve)
    page.goto(f"{ORIGIN}/")
    yield page
    page.close()


def show(modules: Page, *texts: str) -> str:
    html: str = modules.evaluate(SHOW, list(texts))[0]
    return html


def cut(value: Any, at: list[int]) -> list[Any]:
    return [value[a:b] for a, b in zip([0, *at], [*at, len(value)], strict=True)]


def test_a_stream_is_read_as_the_standard_says(modules: Page) -> None:
    found, retry = modules.evaluate(READ, [list(STREAM.encode())])
    assert found == EVENTS
    assert retry == 500


def test_a_stream_may_be_cut_between_any_two_bytes(modules: Page) -> None:
    data = list(STREAM.encode())
    for at in range(1, len(data)):
        assert modules.evaluate(READ, cut(data, [at]))[0] == EVENTS
    assert modules.evaluate(READ, [[byte] for byte in data])[0] == EVENTS


@pytest.mark.parametrize("seed", range(20))
def test_markdown_that_grows_ends_as_if_it_had_come_at_once(modules: Page, seed: int) -> None:
    chance = random.Random(seed)
    lines = DOCUMENT.split("\n")
    text = "\n".join(lines if seed == 0 else chance.choices(lines, k=20))
    whole = show(modules, text)
    assert show(modules, *text) == whole
    assert show(modules, *cut(text, sorted(chance.sample(range(1, len(text)), 5)))) == whole


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("# One *two*", "<h2>One <em>two</em></h2>"),
        ("a **b *c* d** e", "<p>a <strong>b <em>c</em> d</strong> e</p>"),
        ("***both***", "<p><em><strong>both</strong></em></p>"),
        ("snake_case_name and 2 * 3 * 4", "<p>snake_case_name and 2 * 3 * 4</p>"),
        ("``a ` b`` and `open", "<p><code>a ` b</code> and `open</p>"),
        ("one\ntwo", "<p>one<br>two</p>"),
        (r"\*plain\* \<b\>", "<p>*plain* &lt;b&gt;</p>"),
        ("- a\n- b\n  1. c\n  2. d", "<ul><li>a</li><li>b<ol><li>c</li><li>d</li></ol></li></ul>"),
        ("3. c\n4. d", '<ol start="3"><li>c</li><li>d</li></ol>'),
        ("- a\n\n- b", "<ul><li><p>a</p></li><li><p>b</p></li></ul>"),
        ("1. a\n   ```\n   x\n   ```", None),
        ("> a\n> > b", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>"),
        ("a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"),
        ("<b>&amp;</b>", "<p>&lt;b&gt;&amp;amp;&lt;/b&gt;</p>"),
    ],
)
def test_markdown_is_shown_as_writers_mean_it(modules: Page, text: str, html: str | None) -> None:
    shown = show(modules, text)
    assert shown == html if html else '<ol><li>a<div class="code">' in shown


def test_each_block_is_told_once_and_whole(modules: Page) -> None:
    _, said = modules.evaluate(SHOW, list("one\n\n- two\n- three\n\n# four\nfive"))
    assert said == ["one", "twothree", "four", "five"]


def test_growing_text_leaves_what_is_shown_in_place(modules: Page) -> None:
    kept = modules.evaluate(
        """async () => {
            const { MarkdownView } = await import("/markdown_view.js");
            const place = document.createElement("div");
            const view = new MarkdownView(place);
            view.push("a **b** c\\n\\n```\\ncode");
            view.draw();
            const before = [...place.querySelectorAll("p, strong, pre, code")];
            view.push(" and more\\n```\\n\\nnext");
            view.draw();
            return before.every((one) => place.contains(one)) && before.length === 4;
        }"""
    )
    assert kept is True


@pytest.mark.parametrize(
    ("piece", "most"), [("word ", 1), ("word\n\n", 3), ("- word\n", 3), ("```\nword\n```\n", 12), ("| a | b |\n", 3)]
)
def test_a_long_reply_touches_only_what_is_new(modules: Page, piece: str, most: int) -> None:
    """Changes to the document for each of 200 pieces drawn one by one; they would grow with the text otherwise."""
    changes = modules.evaluate(
        """async (piece) => {
            const { MarkdownView } = await import("/markdown_view.js");
            const place = document.createElement("div");
            const observer = new MutationObserver(() => {});
            observer.observe(place, { subtree: true, childList: true, characterData: true });
            const view = new MarkdownView(place);
            for (let n = 0; n < 200; n += 1) { view.push(piece); view.draw(); }
            return observer.takeRecords().length / 200;
        }""",
        piece,
    )
    assert changes <= most
