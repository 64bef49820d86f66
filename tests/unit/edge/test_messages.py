"""Posting a message: what reaches the log, and what intake's word becomes over HTTP."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event, Timer

import httpx_sse
import pytest

from edge.edge import FRESH_MS
from schemas import reply_records as r
from schemas.events import MessagePosted, Turn, TurnSaved
from schemas.ids import ConversationId, MessageId, ReplyId, UserId, mint_reply_id, reply_partition
from schemas.reply import Record
from tests.unit.edge.running_edge import CELL_KEY, PATIENCE_S, RunningEdge, accepted, three_tokens, wait_for
from topics.catalog import MESSAGES
from topics.store.contract import SavedAt

URL = "/v1/conversations/c1/messages"


def test_a_message_is_answered_202_once_it_is_accepted(edge: RunningEdge) -> None:
    answer = edge.post("hello", "c1", Idempotency_Key="k1")
    [posted] = edge.posted
    assert answer.status_code == 202
    assert answer.json() == {
        "reply": posted.reply,
        "conversation": "c1",
        "url": f"/v1/replies/{posted.reply}/events",
    }
    assert (posted.user, posted.account, posted.plan) == ("alice", "alice", "free")
    assert (posted.text, posted.model, posted.client_key, posted.deadline_ms) == ("hello", "m1", "k1", 600_000)


def test_where_it_goes_on_from_and_its_system_prompt_reach_the_log(edge: RunningEdge) -> None:
    with edge.client() as client:
        bodies = ({"text": "hi", "parent": "root", "system": "Be loud."}, {"parent": "u-1"})
        assert [client.post(URL, json=body).status_code for body in bodies] == [202, 202]
    branch, again = edge.posted
    assert (branch.text, branch.parent, branch.system) == ("hi", "root", "Be loud.")
    assert (again.text, again.parent, again.system) == ("", "u-1", None)
    assert branch.body_hash != again.body_hash


def test_of_a_users_long_texts_one_is_on_its_way_to_intake_and_anothers_message_goes_past_them(tmp_path: Path) -> None:
    answering, long = Event(), "x" * 120_000

    def held(posted: MessagePosted) -> list[Record]:
        assert posted.user == "bob" or answering.wait(PATIENCE_S)
        return three_tokens(posted)

    with RunningEdge(tmp_path, held) as edge, ThreadPoolExecutor(21) as pool, edge.client("bob-key") as bob:
        posts = [pool.submit(edge.post, long, f"c{n}") for n in range(20)]
        wait_for(lambda: edge.inner.bodies.held > 20 * (len(long) - edge.inner.bodies.free))
        asked = pool.submit(bob.post, URL, json={"text": "hello"})
        wait_for(lambda: len(edge.messages()) == 2)
        assert sum(len(posted.text) for posted in edge.messages()) == len(long) + len("hello")
        answering.set()
        assert {post.result().status_code for post in [*posts, asked]} == {202}


def test_new_replies_go_round_the_home_partitions(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, partitions=(1, 3)) as edge:
        replies = [ReplyId(edge.reply(f"c{n}")) for n in range(4)]
    assert [reply_partition(reply) for reply in replies] == [1, 3, 1, 3]


def test_a_missing_key_and_a_missing_seed_are_drawn(edge: RunningEdge) -> None:
    edge.post("same", "c1")
    edge.post("same", "c1")
    first, second = edge.posted
    assert first.client_key != second.client_key
    assert first.sampling.seed != second.sampling.seed
    assert first.body_hash == second.body_hash


def test_the_answer_is_the_stream_itself_when_asked_for(edge: RunningEdge) -> None:
    with (
        edge.client() as client,
        httpx_sse.connect_sse(client, "POST", URL, json={"text": "hi"}, headers={"Accept": "text/event-stream"}) as got,
    ):
        heard = [(event.event, event.id) for event in got.iter_sse()]
    assert got.response.headers["content-type"].startswith("text/event-stream")
    assert heard[0] == ("accepted", "0")
    assert heard[-1] == ("finished", "4")


@pytest.mark.parametrize(
    ("rejected", "status"),
    [
        (r.Rejected("conflict", "used before"), 409),
        (r.Rejected("conversation_busy", "waits", 2_000, ReplyId("r0-open")), 409),
        (r.Rejected("context_length_exceeded"), 400),
        (r.Rejected("model_not_found"), 400),
        (r.Rejected("parent_not_found"), 400),
        (r.Rejected("parent_not_a_question"), 400),
        (r.Rejected("quota", "used up", 59_500), 429),
        (r.Rejected("internal"), 500),
        (r.Rejected("history_unavailable", "", 1_000), 503),
        (r.Rejected("a reason of a later version"), 500),
    ],
)
def test_a_rejected_message_has_a_status_of_its_own(edge: RunningEdge, rejected: r.Rejected, status: int) -> None:
    edge.script = lambda _: [rejected]
    answer = edge.post()
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, rejected.reason)
    assert (rejected.reply or "") in error["message"]
    after = None if rejected.retry_after_ms is None else str(-(-rejected.retry_after_ms // 1000))
    assert answer.headers.get("retry-after") == after


def test_a_repeat_is_answered_with_the_first_reply(edge: RunningEdge) -> None:
    first = edge.reply()
    edge.script = lambda _: [r.Redirected(ReplyId(first))]
    again = edge.post()
    assert (again.status_code, again.json()["reply"]) == (202, first)
    with edge.client() as client:
        streamed = client.post(URL, json={"text": "hello"}, headers={"Accept": "text/event-stream"})
    assert streamed.text.startswith("event: accepted\nid: 0\n")
    assert f'"reply":"{first}"' in streamed.text


def save_turns(edge: RunningEdge, reply: ReplyId, text: str = "Hello") -> None:
    for offset, role in enumerate(("user", "assistant")):
        turn = Turn(MessageId(f"{role}-{reply}"), None, role, text, b"", "t", "complete")
        saved = TurnSaved(
            UserId("alice"),
            ConversationId("c1"),
            turn,
            reply,
            "m1",
            5,
            reason="stop",
            prompt_tokens=7,
            completion_tokens=3,
        )
        edge.store.save([SavedAt(offset, saved)])


def test_a_repeat_whose_log_has_expired_is_answered_from_the_store(edge: RunningEdge) -> None:
    first = edge.mint(age_ms=2 * FRESH_MS)
    save_turns(edge, first)
    edge.script = lambda _: [r.Redirected(first)]
    assert edge.post().json()["reply"] == first
    with edge.client() as client:
        streamed = client.post(URL, json={"text": "hello"}, headers={"Accept": "text/event-stream"})
    got = [line for line in streamed.text.splitlines() if line.startswith(("event", "id"))]
    assert got == ["event: accepted", "id: 0", "event: token", "id: 3", "event: finished", "id: 4"]
    assert '{"text":"Hello"}' in streamed.text


def test_a_repeat_that_nobody_remembers_is_503(edge: RunningEdge) -> None:
    long_ago = mint_reply_id(0, 1, f"{1_000:012x}7" + "0" * 19, bytes.fromhex(CELL_KEY))
    edge.script = lambda _: [r.Redirected(long_ago)]
    assert edge.post().status_code == 503


@pytest.mark.parametrize("target", ["garbage", "", "r00fff-" + "0" * 32 + "-00000000"])
def test_a_repeat_that_is_sent_nowhere_is_an_internal_error_of_that_client_alone(
    edge: RunningEdge, target: str
) -> None:
    edge.script = lambda _: [r.Redirected(ReplyId(target))]
    answer = edge.post()
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    edge.script = three_tokens
    assert edge.post().status_code == 202


def test_a_repeat_waits_for_the_first_reply_that_is_not_in_the_log_yet(edge: RunningEdge) -> None:
    first = edge.mint()
    edge.script = lambda _: [r.Redirected(first)]
    timer = Timer(0.1, lambda: edge.write(first, accepted(edge.posted[0])))
    timer.start()
    answer = edge.post()
    timer.join()
    assert (answer.status_code, answer.json()["reply"]) == (202, first)


def test_when_nobody_answers_it_is_503(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, lambda _: [], accept_timeout=0.05) as edge:
        answer = edge.post()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "same Idempotency-Key" in answer.json()["error"]["message"]


def test_a_message_that_the_log_does_not_take_is_503(edge: RunningEdge) -> None:
    edge.log.fail_deliveries(MESSAGES, 1)
    answer = edge.post()
    assert answer.status_code == 503
    assert "not taken by the log" in answer.json()["error"]["message"]
    assert edge.posted == []


@pytest.mark.parametrize(
    ("status", "path", "headers", "body"),
    [
        (400, URL, {}, b'{"text":""}'),
        (400, URL, {}, b"{"),
        (400, URL, {}, b'{"text":"hi","n":2}'),
        (400, URL, {"Idempotency-Key": "a b"}, b'{"text":"hi"}'),
        (400, "/v1/conversations/a%20b/messages", {}, b'{"text":"hi"}'),
        (400, "/v1/conversations/%ff%00/messages", {}, b'{"text":"hi"}'),
        (400, "/v1/conversations/%2e%2e/messages", {}, b'{"text":"hi"}'),
        (401, URL, {"Authorization": "Bearer nobody"}, b'{"text":"hi"}'),
        (413, URL, {}, b'{"text":"' + b"x" * 5_000_000 + b'"}'),
    ],
)
def test_a_refused_message_never_reaches_the_log(
    edge: RunningEdge, status: int, path: str, headers: dict[str, str], body: bytes
) -> None:
    end = [edge.log.places[place].end for place in edge.log.places if place.topic == MESSAGES]
    with edge.client() as client:
        answer = client.post(path, content=body, headers=headers)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "code", "param"}
    assert [edge.log.places[place].end for place in edge.log.places if place.topic == MESSAGES] == end


def test_a_body_over_the_limit_is_refused_before_it_is_sent(edge: RunningEdge) -> None:
    head = f"POST {URL} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice-key\r\nContent-Length: 5000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", edge.port), timeout=PATIENCE_S) as raw:
        raw.sendall(head.encode())
        assert raw.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_a_chunked_body_over_the_limit_is_refused(edge: RunningEdge) -> None:
    with edge.client() as client:
        answer = client.post(URL, content=(b"x" * 65_536 for _ in range(40)))
    assert answer.status_code == 413


def test_the_content_type_does_not_matter(edge: RunningEdge) -> None:
    with edge.client() as client:
        answer = client.post(URL, content=json.dumps({"text": "hi"}), headers={"Content-Type": "text/plain"})
    assert answer.status_code == 202


def test_intakes_answer_may_come_late(edge: RunningEdge) -> None:
    def late(posted: MessagePosted) -> list[r.Accepted]:
        wait_for(lambda: edge.posted)
        return [accepted(posted)]

    edge.script = late
    assert edge.post().status_code == 202
    edge.script = three_tokens


def test_a_repeat_with_the_last_event_seen_goes_on_there(edge: RunningEdge) -> None:
    first = edge.reply()
    edge.script = lambda _: [r.Redirected(ReplyId(first))]
    ids = []
    for cursor in ("2", "4", "9"):
        answer = edge.post("hello", Accept="text/event-stream", Last_Event_ID=cursor)
        ids.append((answer.status_code, [line for line in answer.text.splitlines() if line.startswith("id")]))
    assert ids == [(200, ["id: 3", "id: 4"]), (204, []), (400, [])]


@pytest.mark.parametrize(("cursor", "status"), [("4", 204), ("9", 400), ("1", 410), ("x", 400)])
def test_a_repeat_from_the_store_cannot_go_on_in_the_middle(edge: RunningEdge, cursor: str, status: int) -> None:
    first = edge.mint(age_ms=2 * FRESH_MS)
    save_turns(edge, first)
    edge.script = lambda _: [r.Redirected(first)]
    assert edge.post("hello", Accept="text/event-stream", Last_Event_ID=cursor).status_code == status


def test_what_is_left_of_max_tokens_is_told(edge: RunningEdge) -> None:
    edge.script = lambda posted: [replace(accepted(posted), max_tokens=99)]
    answer = edge.post()
    assert (answer.json()["max_tokens"], answer.headers["x-request-id"]) == (99, answer.json()["reply"])
    edge.write(answer.json()["reply"], r.Stopped("user"))
    with edge.client() as client:
        assert '"max_tokens":99' in client.get(answer.json()["url"]).text
