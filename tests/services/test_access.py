"""Keys and sessions against a running stack: made, used at both edges, taken back while a stream runs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.services.client import Client
from tests.services.running import MendedStack
from tests.services.test_commands import run


@pytest.fixture
def key(paced: MendedStack) -> str:
    """A fresh key of carol's."""
    done = run(paced, "keys", "add", "carol", "--account", "acme", "--note", "test")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def page(paced: MendedStack, key: str) -> Iterator[httpx.Client]:
    """Carol's page, signed in at the first edge; her key is known within seconds."""
    with httpx.Client(timeout=100, trust_env=False) as client:
        bearer = {"Authorization": f"Bearer {key}"}
        url = f"{paced.urls[0]}/v1/session"
        for edge in reversed(paced.urls):  # each reads the keys again in its own time
            paced.until(lambda edge=edge: client.post(f"{edge}/v1/session", headers=bearer).status_code == 200)
        client.headers["X-CSRF-Token"] = client.get(url).json()["csrf"]
        yield client


def revoke(paced: MendedStack) -> None:
    listed = json.loads(run(paced, "keys", "list", "--json").stdout)["keys"]
    [entry] = [entry for entry in listed if entry["user"] == "carol"]
    assert run(paced, "keys", "revoke", entry["id"]).returncode == 0


def test_a_page_goes_on_at_every_edge_that_its_session_names(paced: MendedStack, page: httpx.Client) -> None:
    session = page.get(f"{paced.urls[0]}/v1/session").json()
    assert (session["user"], session["edges"]) == ("carol", list(paced.urls))
    url = f"{paced.urls[0]}/v1/conversations/c1/messages"
    reply = page.post(url, json={"text": "hello"}, headers={"Origin": paced.urls[1]})
    assert reply.headers["access-control-allow-origin"] == paced.urls[1]
    assert reply.headers["access-control-allow-credentials"] == "true"
    events = page.get(f"{paced.urls[1]}/v1/replies/{reply.json()['reply']}/events")
    assert "event: finished" in events.text
    revoke(paced)


def test_a_revoked_key_ends_calls_session_and_stream_and_nobody_elses(
    paced: MendedStack, page: httpx.Client, key: str, wendy: Client
) -> None:
    post = f"{paced.urls[0]}/v1/conversations/c2/messages"
    reply = page.post(post, json={"text": "word " * 900}).json()["reply"]
    events = f"{paced.urls[1]}/v1/replies/{reply}/events"
    with page.stream("GET", events) as stream:
        chunks = stream.iter_text()
        assert "event: accepted" in next(chunks)
        revoke(paced)
        last = "".join(chunks).rstrip().rpartition("\n\n")[2]
        assert last.startswith("event: error") and "invalid_api_key" in last
    assert page.get(events).status_code == 401
    for url in paced.urls:
        paced.until(lambda url=url: page.post(post.replace(paced.urls[0], url), json={"text": "x"}).status_code == 401)
        assert httpx.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code == 401
    assert wendy.ask("GET", "/v1/models").status_code == 200
