"""A key becomes a cookie that lets its page do all that the key could, and no other page anything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from edge.session import reachable
from tests.unit.edge.running_edge import RunningEdge, wait_for, write_keys


@pytest.fixture
def page(edge: RunningEdge) -> Iterator[httpx.Client]:
    """A page that has signed in: it has the cookie, and no key."""
    with edge.client(None) as client:
        sign_in(client)
        yield client


def sign_in(client: httpx.Client) -> dict[str, Any]:
    answer = client.post("/v1/session", headers={"Authorization": "Bearer alice-key"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_key_is_exchanged_for_a_cookie_that_no_script_reads(edge: RunningEdge) -> None:
    with edge.client(None) as client:
        answer = client.post("/v1/session", headers={"Authorization": "Bearer alice-key"})
        session = answer.json()
        assert {"user": "alice", "edges": []}.items() <= session.items()
        assert 86_390 < session["expires_in"] <= 86_400
        cookie = answer.headers["set-cookie"].lower()
        assert all(word in cookie for word in ("httponly", "samesite=strict", "path=/", "max-age=86"))
        assert client.get("/v1/session").json() == session | {"expires_in": pytest.approx(session["expires_in"], abs=9)}


def test_a_session_is_not_made_of_a_session_or_a_wrong_key(edge: RunningEdge, page: httpx.Client) -> None:
    assert page.post("/v1/session").status_code == 401
    assert page.post("/v1/session", headers={"Authorization": "Bearer x"}).status_code == 401
    with edge.client(None) as client:
        refused = client.get("/v1/session", headers={"Cookie": "laneway=eyJ9.x"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "no_session")


def test_a_page_posts_and_streams_with_its_token(page: httpx.Client) -> None:
    url, csrf = "/v1/conversations/c1/messages", {"X-CSRF-Token": page.get("/v1/session").json()["csrf"]}
    reply = page.post(url, json={"text": "hello"}, headers=csrf).json()["reply"]
    assert "event: finished" in page.get(f"/v1/replies/{reply}/events").text
    assert page.post(f"/v1/replies/{reply}/stop", headers=csrf).json() == {"state": "finished"}


@pytest.mark.parametrize("token", [None, "", "wrong", "\xff"])
def test_what_changes_something_needs_the_token(edge: RunningEdge, page: httpx.Client, token: str | None) -> None:
    headers = {} if token is None else {"X-CSRF-Token": token.encode("latin-1")}
    posted = len(edge.posted)
    refused = page.post("/v1/conversations/c1/messages", json={"text": "hello"}, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "csrf_token_missing")
    assert page.delete("/v1/session", headers=headers).status_code == 403
    assert len(edge.posted) == posted


def test_a_header_counts_before_the_cookie_and_needs_no_token(edge: RunningEdge, page: httpx.Client) -> None:
    url, bob = "/v1/conversations/c1/messages", {"Authorization": "Bearer bob-key"}
    assert page.post(url, json={"text": "hello"}, headers=bob).status_code == 202
    assert edge.posted[-1].user == "bob"
    assert page.get("/v1/models", headers={"Authorization": "Bearer x"}).status_code == 401


def test_signing_out_clears_the_cookie_also_of_a_session_that_is_over(page: httpx.Client) -> None:
    csrf = {"X-CSRF-Token": page.get("/v1/session").json()["csrf"]}
    assert page.delete("/v1/session", headers=csrf).status_code == 204
    assert not page.cookies and page.get("/v1/session").status_code == 401
    assert page.delete("/v1/session", headers={"Cookie": "laneway=old"}).status_code == 204


def test_a_session_ends_with_its_key(tmp_path: Path) -> None:
    with RunningEdge(tmp_path) as edge, edge.client(None) as page:
        sign_in(page)
        write_keys(edge.keys, {"bob-key": "bob"})
        wait_for(lambda: page.get("/v1/models").status_code == 401)
        assert page.get("/v1/session").status_code == 401


def test_a_session_counts_at_every_edge_of_the_cell(edge: RunningEdge, page: httpx.Client, tmp_path: Path) -> None:
    with RunningEdge(tmp_path) as other, other.client(None) as elsewhere:
        assert elsewhere.get("/v1/models").status_code == 401
        elsewhere.cookies.update(page.cookies)
        assert elsewhere.get("/v1/session").json()["csrf"] == page.get("/v1/session").json()["csrf"]


def test_a_session_is_over_in_time(edge: RunningEdge) -> None:
    with edge.client(None) as client:
        for seconds, status in ((3600, 200), (-1, 401)):
            let_in = edge.inner.access.bearer("Bearer alice-key")
            sealed = edge.inner.access.sealer.seal(replace(let_in, expires=time.time() + seconds))
            assert client.get("/v1/models", headers={"Cookie": f"laneway={sealed}"}).status_code == status


def test_a_page_goes_on_at_edges_that_its_cookie_reaches() -> None:
    both = ("http://127.0.0.1:1", "http://127.0.0.1:2", "http://localhost:1", "http://localhost:2")
    assert reachable(both, "localhost") == both[2:]
    assert reachable(both, "chat.example") == both
    assert reachable((), "localhost") == ()
