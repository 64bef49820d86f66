"""Reading, resuming and stopping a reply; nobody else learns that it exists."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from schemas import reply_records as r
from schemas.ids import ConversationId, ReplyId, UserId, mint_reply_id, reply_partition
from tests.unit.edge.running_edge import CELL_KEY, RunningEdge, accepted, events, finished, started, tokens, wait_for
from tests.unit.edge.test_messages import save_turns
from tests.unit.edge.test_view import POSTED
from topics.catalog import REPLIES
from topics.log import Append, Place

BAD_CURSORS = ["5", str(2**31), "abc", "-1", "1e9", "", "9" * 10_240, "5; id", "3.0", "\u0663"]


def get(edge: RunningEdge, path: str, key: str | None = "alice-key", **headers: str) -> httpx.Response:
    with edge.client(key) as client:
        return client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})


def old() -> ReplyId:
    """A genuine id from long ago, of which the log holds nothing."""
    return mint_reply_id(0, 1, f"{1_000:012x}7{0:019x}", bytes.fromhex(CELL_KEY))


def accepted_for(reply: ReplyId) -> r.Accepted:
    return replace(accepted(replace(POSTED, reply=reply)), user=UserId("alice"), conversation=ConversationId("c1"))


def test_a_stream_tells_the_reply_from_the_beginning(edge: RunningEdge) -> None:
    reply = edge.reply()
    with edge.client() as client:
        heard = [(event.event, event.data) for event in events(client, reply)]
    assert [kind for kind, _ in heard] == ["accepted", "queued", "token", "token", "token", "finished"]
    assert heard[2:5] == [("token", '{"text":"Hel"}'), ("token", '{"text":""}'), ("token", '{"text":"lo"}')]


@pytest.mark.parametrize("cut", range(4))
def test_a_stream_resumes_after_any_cut(edge: RunningEdge, cut: int) -> None:
    reply = edge.reply()
    with edge.client() as client:
        heard = [event.id for event in events(client, reply, cut) if event.event != "queued"]
    assert heard == [str(n) for n in range(cut + 1, 5)]


def test_a_cursor_may_come_in_the_query(edge: RunningEdge) -> None:
    reply = edge.reply()
    assert get(edge, f"/v1/replies/{reply}/events?last_event_id=3").text.startswith("event: finished\nid: 4\n")


def test_a_client_that_has_seen_the_end_gets_204(edge: RunningEdge) -> None:
    answer = get(edge, f"/v1/replies/{edge.reply()}/events", Last_Event_ID="4")
    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("cursor", BAD_CURSORS)
def test_a_bad_cursor_is_400(edge: RunningEdge, cursor: str) -> None:
    request = httpx.Request("GET", "/", headers=[(b"Last-Event-ID", cursor.encode())])
    with edge.client() as client:
        answer = client.get(f"/v1/replies/{edge.reply()}/events", headers=request.headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "Last-Event-ID"


@pytest.mark.parametrize(("cursor", "status"), [(2, 200), (3, 200), (4, 204), (5, 400)])
def test_a_cursor_beyond_an_open_reply_waits_for_its_tokens(edge: RunningEdge, cursor: int, status: int) -> None:
    edge.script = lambda posted: [accepted(posted), started(), tokens(1, "a")]
    reply = edge.reply()
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(get, edge, f"/v1/replies/{reply}/events", Last_Event_ID=str(cursor))
        edge.write(reply, tokens(2, "b", "c"), finished(3))
        answer = waiting.result()
    assert answer.status_code == status
    assert answer.text.count("event: token") == max(0, 3 - cursor)


def test_nobody_else_sees_a_reply(edge: RunningEdge) -> None:
    reply = edge.reply()
    forged = reply[:-1] + ("0" if reply[-1] != "0" else "1")
    for path in ("", "/events"):
        foreign = get(edge, f"/v1/replies/{reply}{path}", "bob-key")
        others = {other: get(edge, f"/v1/replies/{other}{path}") for other in (forged, old(), "x", "r00")}
        told = {(answer.status_code, answer.text.replace(other, reply)) for other, answer in others.items()}
        assert told == {(404, foreign.text)}
        assert {(*answer.headers,) for answer in others.values()} == {(*foreign.headers,)}


@pytest.mark.parametrize("path", ["", "/events", "/stop"])
def test_no_key_and_a_wrong_key_are_401_alike(edge: RunningEdge, path: str) -> None:
    reply = edge.reply()
    method = "POST" if path == "/stop" else "GET"
    for key in (None, "nobody"):
        with edge.client(key) as client:
            answer = client.request(method, f"/v1/replies/{reply}{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


def test_a_reply_of_another_edge_is_found_in_the_log(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, partitions=(0,)) as edge:
        reply = edge.mint(partition=2)
        edge.write(reply, accepted_for(reply), started(), tokens(1, "a"))
        with edge.client() as client:
            heard = []
            for event in events(client, reply):
                heard.append(event.event)
                if event.event == "token":
                    edge.write(reply, finished(1))
    assert heard == ["accepted", "queued", "token", "finished"]


def test_a_fresh_reply_that_is_not_in_the_log_yet_is_waited_for(edge: RunningEdge) -> None:
    reply = edge.mint()
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(get, edge, f"/v1/replies/{reply}/events")
        edge.write(reply, accepted_for(reply), r.Failed("deadline"))
        assert "event: failed\nid: 1\n" in waiting.result().text


def test_a_reply_as_json(edge: RunningEdge) -> None:
    reply = edge.reply()
    wait_for(lambda: get(edge, f"/v1/replies/{reply}").json()["state"] == "finished")
    assert get(edge, f"/v1/replies/{reply}").json() == {
        "id": reply,
        "conversation": "c1",
        "model": "m1",
        "state": "finished",
        "text": "Hello",
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        "finish_reason": "stop",
        "cursor": 4,
    }


def test_an_expired_reply_is_410_for_its_owner_and_names_the_conversation(edge: RunningEdge) -> None:
    reply = old()
    save_turns(edge, reply)
    gone = get(edge, f"/v1/replies/{reply}/events")
    assert (gone.status_code, gone.json()["error"]["code"]) == (410, "reply_expired")
    assert "/v1/conversations/c1" in gone.json()["error"]["message"]
    assert get(edge, f"/v1/replies/{reply}/events", "bob-key").status_code == 404
    assert get(edge, f"/v1/replies/{reply}").json()["text"] == "Hello"


def stop(edge: RunningEdge, reply: str, key: str = "alice-key") -> httpx.Response:
    with edge.client(key) as client:
        return client.post(f"/v1/replies/{reply}/stop")


def test_a_stop_is_in_the_log_before_it_is_answered_and_may_be_repeated(edge: RunningEdge) -> None:
    edge.script = lambda posted: [accepted(posted), started(), tokens(1, "a")]
    reply = edge.reply()
    first, second = stop(edge, reply), stop(edge, reply)
    assert first.json() == second.json() == {"state": "stopped"}
    assert [record for record in edge.records(reply) if isinstance(record, r.Stopped)] == [r.Stopped("user")]


def test_a_stop_after_the_end_tells_the_real_end(edge: RunningEdge) -> None:
    reply = edge.reply()
    wait_for(lambda: get(edge, f"/v1/replies/{reply}").json()["state"] == "finished")
    assert stop(edge, reply).json() == {"state": "finished"}


def test_nobody_else_stops_a_reply(edge: RunningEdge) -> None:
    edge.script = lambda posted: [accepted(posted)]
    reply = edge.reply()
    assert stop(edge, reply, "bob-key").status_code == 404
    assert not any(isinstance(record, r.Stopped) for record in edge.records(reply))


def test_a_stopped_stream_ends(edge: RunningEdge) -> None:
    edge.script = lambda posted: [accepted(posted), started(), tokens(1, "a")]
    reply = edge.reply()
    heard = []
    with edge.client() as client:
        for event in events(client, reply):
            heard.append(event.event)
            if event.event == "token":
                stop(edge, reply)
    assert heard[-2:] == ["token", "stopped"]


def test_a_record_that_cannot_be_read_is_skipped_and_counted(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, lambda posted: [accepted(posted), started()]) as edge:
        reply = edge.reply()
        place = Place(REPLIES, reply_partition(ReplyId(reply)))
        for value in (b"junk", b"\xc3\x01" + b"unknown!" + b"x", None):
            edge.log.producer().send(Append(place, f"{reply}/w/{value!r}".encode(), value))
        edge.write(reply, tokens(1, "a"), finished(1))
        with edge.client() as client:
            assert [event.event for event in events(client, reply)][-2:] == ["token", "finished"]
            assert "laneway_edge_records_skipped_total 2.0" in client.get("/metrics").text
