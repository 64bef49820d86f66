"""Streams as connections: silence, slow readers, readers that go, an edge that goes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from schemas import reply_records as r
from schemas.events import MessagePosted
from schemas.reply import Record
from tests.unit.edge.running_edge import (
    PATIENCE_S,
    RunningEdge,
    accepted,
    events,
    finished,
    started,
    tokens,
    wait_for,
    write_keys,
)
from tests.unit.edge.test_replies import accepted_for
from topics.catalog import REPLIES
from topics.errors import Unavailable
from topics.log import Place


def still_open(posted: MessagePosted) -> list[Record]:
    return [accepted(posted), started(), tokens(1, "a")]


def connected(edge: RunningEdge, reply: str) -> socket.socket:
    """A connection on which a stream was asked for, with a small window."""
    raw = socket.socket()
    raw.settimeout(PATIENCE_S)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect(("127.0.0.1", edge.port))
    raw.sendall(
        f"GET /v1/replies/{reply}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice-key\r\n\r\n".encode()
    )
    return raw


def metric(edge: RunningEdge, name: str) -> float:
    with edge.client() as client:
        lines = client.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[-1])


def test_a_silent_stream_is_kept_alive_by_comments(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, still_open, keep_alive=0.01) as edge:
        reply, text = edge.reply(), ""
        with edge.client() as client, client.stream("GET", f"/v1/replies/{reply}/events") as got:
            for chunk in got.iter_text():
                text += chunk
                if text.count(": ping\n") == 3:
                    edge.write(reply, finished(1))
    assert text.endswith("\n\n") and "event: finished\nid: 2\n" in text
    assert ": ping\n: ping\n: ping\n" in text


def test_the_headers_of_a_stream_keep_proxies_from_holding_it_back(edge: RunningEdge) -> None:
    with edge.client() as client, client.stream("GET", f"/v1/replies/{edge.reply()}/events") as got:
        assert got.headers["content-type"].startswith("text/event-stream")
        assert got.headers["x-accel-buffering"] == "no"
        assert got.headers["cache-control"] == "no-store"
        assert "content-encoding" not in got.headers


def test_a_slow_reader_is_cut_off_and_the_others_are_not(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, still_open, send_timeout=0.1) as edge:
        reply = edge.reply()
        with connected(edge, reply), edge.client() as client:
            wait_for(lambda: metric(edge, "laneway_edge_streams") == 1)
            for n in range(2, 802):
                edge.write(reply, tokens(n, "x" * 10_000))
            wait_for(lambda: metric(edge, "laneway_edge_slow_readers_total") == 1)
            wait_for(lambda: metric(edge, "laneway_edge_streams") == 0)
            edge.write(reply, finished(801))
            assert [event.id for event in events(client, reply, 800)] == ["801", "802"]


def test_a_reader_that_goes_ends_its_stream(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, still_open) as edge:
        reply = edge.reply()
        with connected(edge, reply) as raw:
            assert raw.recv(1000).startswith(b"HTTP/1.1 200")
            wait_for(lambda: metric(edge, "laneway_edge_streams") == 1)
        wait_for(lambda: metric(edge, "laneway_edge_streams") == 0)


def test_the_log_is_told_of_every_listener(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, still_open) as edge:
        reply = edge.reply()
        for _ in range(2):
            with connected(edge, reply) as raw:
                assert raw.recv(1000)
        kinds = (r.ListenerAttached, r.ListenerDetached)
        wait_for(lambda: sum(isinstance(record, kinds) for record in edge.records(reply)) == 4)
        records = [record for record in edge.records(reply) if isinstance(record, kinds)]
    attached = {record.stream for record in records if isinstance(record, r.ListenerAttached)}
    assert {record.stream for record in records} == attached
    assert len(attached) == 2


def test_an_edge_that_is_told_to_stop_ends_its_streams_with_a_retry(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, still_open) as edge:
        text, reply = "", edge.reply()
        with edge.client() as client, client.stream("GET", f"/v1/replies/{reply}/events") as got:
            for chunk in got.iter_text():
                text += chunk
                edge.process.server.should_exit = True
    assert text.endswith("\n\nretry: 500\n")
    assert "id: 1\n" in text


def test_a_revoked_key_ends_its_streams_and_no_others(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, still_open) as edge, edge.client() as alice, edge.client("bob-key") as bob:
        alices, bobs = (
            client.post(f"/v1/conversations/c{n}/messages", json={"text": "hi"}).json()["reply"]
            for n, client in enumerate((alice, bob))
        )
        path = "/v1/replies/%s/events"
        with alice.stream("GET", path % alices) as cut, bob.stream("GET", path % bobs) as kept:
            write_keys(edge.keys, {"bob-key": "bob"})
            assert b'event: error\ndata: {"error":{"message":"the API key' in cut.read()
            edge.write(bobs, finished(1))
            assert b"event: finished" in kept.read()
        assert alice.get(path % alices).status_code == 401


def test_a_leaving_edge_is_unready_first_and_a_second_signal_hurries_it(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, still_open, drain=3600.0) as edge, edge.client() as client:
        wait_for(lambda: client.get("/ready").status_code == 200)
        reply = edge.reply()
        with client.stream("GET", f"/v1/replies/{reply}/events") as got:
            edge.signal()
            wait_for(lambda: client.get("/ready").status_code == 503)
            assert client.get("/ready").json() == {"ready": False, "missing": ["draining"]}
            edge.signal()
            assert got.read().endswith(b"retry: 500\n")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_lost_log_ends_the_streams_and_the_process(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, still_open) as edge:
        reply = edge.reply()
        with edge.client() as client, client.stream("GET", f"/v1/replies/{reply}/events") as got:
            edge.log.lost = True
            assert got.read().endswith(b"retry: 500\n")
        edge.join()
        assert isinstance(edge.process.failure, Unavailable)


def test_a_stream_whose_log_was_deleted_before_it_was_read_says_so(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, still_open) as edge, edge.client() as client:
        reply = edge.reply()
        with client.stream("GET", f"/v1/replies/{reply}/events") as got:
            wait_for(lambda: metric(edge, "laneway_edge_streams") == 1)
            edge.log.frozen = True
            edge.write(reply, tokens(2, "b"), finished(2))
            place = Place(REPLIES, int(reply[3:6], 16))
            edge.log.delete_before(place, edge.log.places[place].end)
            edge.log.frozen = False
            assert got.read().split(b"\n\n")[-2].startswith(b'event: error\ndata: {"error":{"message":"the reply log')
        assert client.get("/ready").status_code == 200


def test_a_past_that_cannot_be_read_is_503_until_it_can_and_is_kept_then(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, partitions=(0,)) as edge, edge.client() as client:
        first, second = edge.mint(partition=1), edge.mint(partition=1)
        for reply in (first, second):
            edge.write(reply, accepted_for(reply), r.Failed("deadline"))
        edge.log.past_lost = True
        assert client.get(f"/v1/replies/{first}/events").status_code == 503
        edge.log.past_lost = False
        assert client.get(f"/v1/replies/{first}/events").status_code == 200
        edge.log.past_lost = True
        assert client.get(f"/v1/replies/{second}/events").status_code == 200


def test_an_edge_beats(edge: RunningEdge) -> None:
    wait_for(lambda: edge.beats())
    assert {beat.incarnation for beat in edge.beats()} == {edge.inner.incarnation}
