"""What is refused: strangers learn nothing, a bad request is told why, and neither leaves a trace in the log."""

from __future__ import annotations

import re
import time

import httpx
import pytest

from schemas.ids import ReplyId, mint_reply_id
from tests.services.client import Client
from tests.services.records import Records
from tests.services.running import until
from tests.stack import Stack

PATHS = [("GET", ""), ("GET", "/events"), ("POST", "/stop")]
HOUR_MS = 3_600_000
BAD_BODIES: list[tuple[bytes, int, tuple[str, ...]]] = [
    (b"", 400, ("JSON",)),
    (b'{"text": "hi"', 400, ("JSON",)),
    (b'["hi"]', 400, ("['hi']", "object")),
    (b"{}", 400, ("text", "None")),
    (b'{"text": ""}', 400, ("text", "''")),
    (b'{"text": " \\n\\t"}', 400, ("text", r"' \n\t'")),
    (b'{"text": 7}', 400, ("text", "7")),
    (b'{"text": ["hi"]}', 400, ("text", "['hi']")),
    (b'{"text": "\\ud800"}', 400, ("JSON", "surrogate")),
    (b'{"text": "\xed\xa0\x80"}', 400, ("JSON", "surrogates")),
    (b'{"text": "hi", "temperature": NaN}', 400, ("JSON",)),
    (b'{"text": "hi", "temperature": 1e400}', 400, ("JSON", "infinity")),
    (b'{"text": "hi", "temperature": "hot"}', 400, ("temperature", "'hot'")),
    (b'{"text": "hi", "max_tokens": -1}', 400, ("max_tokens", "-1")),
    (b'{"text": "hi", "max_tokens": 1.5}', 400, ("max_tokens", "1.5")),
    (b'{"text": "hi", "max_tokens": true}', 400, ("max_tokens", "True")),
    (b'{"text": "hi", "deadline_s": -3}', 400, ("deadline_s", "-3")),
    (b'{"text": "hi", "model": "gpt-9"}', 400, ("model", "'gpt-9'")),
    (b'{"text": "hi", "mood": "good"}', 400, ("mood", "'good'")),
    (b'{"text": "' + b"x" * 5_000_000 + b'"}', 413, ("5000012", "at most")),
]


def minted(stack: Stack, key: str | None = None) -> ReplyId:
    """An id of this cell from an hour ago that nobody was given; forged under another key."""
    cell_key = key or (stack.folder / "cell.key").read_text()
    then = time.time_ns() // 1_000_000 - HOUR_MS
    return mint_reply_id(0, 3, f"{then:012x}7" + "0" * 19, bytes.fromhex(cell_key.strip()))


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_unknown_forged_and_foreign_replies_look_alike(
    stack: Stack, alice: Client, bob: Client, method: str, path: str
) -> None:
    reply = alice.say("private", "a secret")
    alice.follow(reply)
    forged = f"{reply[:-1]}{'0' if reply[-1] != '0' else '1'}"
    others = [reply, minted(stack), minted(stack, "ab" * 16), forged, "x", "r00000-", "%00"]
    answers = [bob.ask(method, f"/v1/replies/{other}{path}", edge) for other in others for edge in (0, 1)]
    assert {answer.status_code for answer in answers} == {404}
    assert len(set(map(unnamed, answers))) == 1


def unnamed(answer: httpx.Response) -> str:
    """What it says, whatever it was asked for."""
    return re.sub("'[^']*'", "", answer.text)


def test_unknown_and_foreign_conversations_look_alike(alice: Client, bob: Client) -> None:
    alice.follow(alice.say("hers-alone", "a secret"))
    until(lambda: alice.messages("hers-alone"))
    answers = [bob.ask("GET", f"/v1/conversations/{name}") for name in ("hers-alone", "nobodys")]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert unnamed(answers[0]) == unnamed(answers[1])
    assert "hers-alone" not in bob.ask("GET", "/v1/conversations").text


def test_one_conversation_id_is_two_conversations_for_two_users(alice: Client, bob: Client) -> None:
    for user in (alice, bob):
        user.follow(user.say("same-id", f"I am {user.user}"))
    until(lambda: len(alice.messages("same-id")) == len(bob.messages("same-id")) == 2)
    for user in (alice, bob):
        assert {message["text"] for message in user.messages("same-id")} == {f"I am {user.user}"}


@pytest.mark.parametrize("authorization", [None, "Bearer lw-nobody", "Bearer", "Basic abc"])
def test_without_a_known_key_nothing_is_answered(alice: Client, log: Records, authorization: str | None) -> None:
    before, reply = log.ends("messages"), "r00000-x"
    calls = [(method, f"/v1/replies/{reply}{path}") for method, path in PATHS]
    calls += [("POST", "/v1/conversations/c/messages"), ("GET", "/v1/conversations"), ("GET", "/v1/models")]
    headers = {"Authorization": authorization or ""}
    answers = [alice.ask(method, path, headers=headers) for method, path in calls]
    assert {(answer.status_code, answer.json()["error"]["code"]) for answer in answers} == {(401, "invalid_api_key")}
    assert log.posted(since=before) == []


@pytest.mark.parametrize(("body", "status", "named"), BAD_BODIES, ids=[ascii(body[:40]) for body, _, _ in BAD_BODIES])
def test_a_bad_body_is_told_what_is_wrong_and_reaches_no_topic(
    alice: Client, log: Records, body: bytes, status: int, named: tuple[str, ...]
) -> None:
    before = log.ends("messages")
    answer = alice.ask("POST", "/v1/conversations/refused/messages", content=body)
    assert answer.status_code == status
    assert all(word in answer.json()["error"]["message"] for word in named), answer.text
    assert log.posted(since=before) == []


def test_a_text_longer_than_the_context_is_refused_by_intake(alice: Client, log: Records) -> None:
    before = log.ends("messages")
    refused = alice.post("too-long", "hello " * 8192)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert "8192" in refused.json()["error"]["message"]
    assert [posted.conversation for posted in log.posted(since=before)] == ["too-long"]
    alice.follow(alice.say("short-enough", "hello"))  # decided later, so all about the other is in the log by now
    assert "too-long" not in {saved.conversation for saved in log.turns()}
