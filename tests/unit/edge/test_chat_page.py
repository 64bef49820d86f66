"""The chat page's files as an edge serves them."""

from __future__ import annotations

import re

import pytest

from edge.chat_page import FOLDER, read_page
from tests.unit.edge.running_edge import RunningEdge

FILES = read_page(FOLDER)
OFF_PAGE = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://[a-z]")


def test_the_page_and_its_files_are_served_without_a_key(edge: RunningEdge) -> None:
    with edge.client(key=None) as client:
        page, script = client.get("/"), client.get("/page/page.js")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.content == FILES["index.html"].body
    assert script.headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert "require-trusted-types-for 'script'" in page.headers["Content-Security-Policy"]


def test_a_browser_that_has_a_file_is_not_sent_it_again(edge: RunningEdge) -> None:
    with edge.client(key=None) as client:
        etag = client.get("/page/page.css").headers["ETag"]
        again = client.get("/page/page.css", headers={"If-None-Match": etag})
    assert again.status_code == 304
    assert again.content == b""


@pytest.mark.parametrize("name", ["nothing.js", "..%2fapp.py", "%2e%2e/app.py", ""])
def test_nothing_but_the_pages_files_is_served(edge: RunningEdge, name: str) -> None:
    with edge.client(key=None) as client:
        assert client.get(f"/page/{name}").status_code == 404


@pytest.mark.parametrize("name", sorted(name for name in FILES if name.endswith(".js")))
def test_no_script_of_the_page_makes_markup_of_text_or_calls_strangers(name: str) -> None:
    text = FILES[name].body.decode()
    assert not OFF_PAGE.search(text)
    assert len(text.splitlines()) <= 300


def test_every_import_and_file_that_the_page_names_is_there() -> None:
    scripts = [file.body.decode() for name, file in FILES.items() if name.endswith(".js")]
    imported = {name for text in scripts for name in re.findall(r'from "\./([^"]+)"', text)}
    linked = set(re.findall(r'(?:href|src)="/page/([^"]+)"', FILES["index.html"].body.decode()))
    assert imported | linked == set(FILES) - {"index.html"}
