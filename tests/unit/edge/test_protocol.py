"""What a client cannot do to an edge: make it hold much, keep it waiting, or disturb anybody else."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path

import pytest

from edge import protocol
from tests.unit.edge.running_edge import PATIENCE_S, RunningEdge, finished, tokens, wait_for
from tests.unit.edge.test_streams import connected, metric, still_open

AUTH = b"Authorization: Bearer alice-key\r\n"
POST = b"POST /v1/conversations/c1/messages HTTP/1.1\r\nHost: x\r\n" + AUTH


def raw(edge: RunningEdge, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", edge.port), timeout=PATIENCE_S)
    connection.sendall(sent)
    return connection


def answer_of(connection: socket.socket) -> bytes:
    """All that comes until the edge closes."""
    got = b""
    try:
        while chunk := connection.recv(65536):
            got += chunk
    except ConnectionResetError:
        pass
    return got


def status_of(edge: RunningEdge, sent: bytes) -> int:
    """Of an answer that the connection itself gives: named and counted as any other is."""
    with edge.client() as client:
        before = client.get("/metrics").text
        with raw(edge, sent) as connection:
            answer = answer_of(connection)
        after = client.get("/metrics").text
    assert b"\r\nconnection: close\r\n" in answer and b'{"error":' in answer, answer
    assert b"\r\nx-request-id: req-" in answer
    status, code = int(answer.split(b" ", 2)[1]), json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"]
    asked = ("requests_total", ""), ("requests_total", f'status="{status}"'), ("refused_total", f'code="{code}"')
    asked_for_metrics = 1
    assert [total(after, *series) - total(before, *series) for series in asked] == [1 + asked_for_metrics, 1, 1]
    return status


def total(metrics: str, name: str, label: str) -> float:
    """Of the series of that name which have the label."""
    lines = [line for line in metrics.splitlines() if line.startswith(f"laneway_edge_{name}") and label in line]
    return sum(float(line.split()[-1]) for line in lines)


@pytest.mark.parametrize(
    "head",
    [b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"x" * 66_000 + b"\r\n\r\n",
     b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 14_000, b"GET / HTTP/1.1\r\nX: " + b"x" * 66_000, b"\r\n" * 33_000],
    ids=["path", "header", "headers", "endless header", "blank lines"],
)  # fmt: skip
def test_a_head_is_at_most_64_kib(edge: RunningEdge, head: bytes) -> None:
    assert status_of(edge, head) == 431


def test_a_head_just_below_is_served(edge: RunningEdge) -> None:
    with raw(edge, b"GET /health HTTP/1.1\r\nConnection: close\r\nX: " + b"x" * 60_000 + b"\r\n\r\n") as connection:
        assert answer_of(connection).startswith(b"HTTP/1.1 200")


def test_endless_trailers_of_a_body_are_cut_off(edge: RunningEdge) -> None:
    with raw(edge, POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ") as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"x" * 600_000)
        assert b" 408 " not in answer_of(connection)


@pytest.mark.parametrize("sent", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nX: y\r\n"])
def test_half_a_head_is_not_waited_for(edge: RunningEdge, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.05)
    with raw(edge, sent) as connection:
        answer = answer_of(connection)
    assert answer.startswith(b"HTTP/1.1 408") if sent else answer == b""


def test_half_a_body_is_not_waited_for(edge: RunningEdge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "BODY_PAUSE_S", 0.05)
    posted = len(edge.posted)
    assert status_of(edge, POST + b"Content-Length: 20\r\n\r\n{") == 408
    assert len(edge.posted) == posted


def test_a_body_that_an_answer_did_not_need_is_not_asked_for(
    edge: RunningEdge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "BODY_PAUSE_S", 0.05)
    with raw(edge, b"POST /v1/session HTTP/1.1\r\nContent-Length: 20\r\n\r\n{") as connection:
        answer = answer_of(connection)
    assert answer.startswith(b"HTTP/1.1 401") and answer.count(b"HTTP/1.1") == 1


def test_a_body_that_drips_is_not_waited_for_either(edge: RunningEdge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "BODY_PAUSE_S", 3600.0)
    monkeypatch.setattr(protocol, "BODY_TIMEOUT_S", -1.0)
    assert status_of(edge, POST + b"Content-Length: 20\r\n\r\n{") == 408


def test_a_client_that_breaks_its_second_request_is_cut_off_alone(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, still_open) as edge:
        reply = edge.reply()
        with connected(edge, reply) as bad, connected(edge, reply) as good:
            wait_for(lambda: metric(edge, "laneway_edge_streams") == 2)
            bad.sendall(b"no request\r\n\r\n")
            assert b"400" not in answer_of(bad)
            wait_for(lambda: metric(edge, "laneway_edge_streams") == 1)
            edge.write(reply, tokens(2, "b"), finished(2))
            wait_for(lambda: b"event: finished" in good.recv(65536))


def test_many_requests_that_wait_on_one_connection_are_cut_off(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, still_open) as edge:
        with connected(edge, edge.reply()) as greedy:
            wait_for(lambda: metric(edge, "laneway_edge_streams") == 1)
            greedy.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
            assert b'"status"' not in answer_of(greedy)
        wait_for(lambda: metric(edge, "laneway_edge_streams") == 0)


@pytest.mark.parametrize("bound", ["connections", "of_address"])
def test_one_connection_too_many_is_refused_until_another_goes(tmp_path: Path, bound: str) -> None:
    with RunningEdge(tmp_path, **{bound: 2}) as edge:
        with raw(edge) as first, raw(edge):
            with raw(edge) as third:
                answer = answer_of(third)
                assert answer.startswith(b"HTTP/1.1 503") and b"\r\nretry-after: 1\r\n" in answer
            first.close()
            wait_for(lambda: edge.process.server.config.bounds.addresses["127.0.0.1"] == 1)
            with raw(edge, b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n") as again:
                assert answer_of(again).startswith(b"HTTP/1.1 200")
        wait_for(lambda: not edge.process.server.config.bounds.addresses)


def test_all_heads_together_have_a_bound_and_an_ordinary_one_always_fits(tmp_path: Path) -> None:
    head = b"GET /health HTTP/1.1\r\n" + b"X: " + b"x" * 60_000
    with RunningEdge(tmp_path, still_open) as edge, contextlib.ExitStack() as opened:
        room = edge.process.server.config.bounds.room
        room.most = 3 * (60_000 - room.free) + 2_000
        floods = [opened.enter_context(raw(edge, head)) for _ in range(3)]
        wait_for(lambda: room.held > 3 * (60_000 - room.free))
        assert status_of(edge, head) == 503
        assert edge.post().status_code == 202
        with connected(edge, edge.reply()) as stream:
            wait_for(lambda: b"event: token" in stream.recv(65536))
        assert room.held <= room.most
        floods[0].close()
        wait_for(lambda: room.held < 2 * 60_000)
        assert status_of(edge, head + b"\r\nno header\r\n\r\n") == 400
    assert room.held == 0


def test_a_head_is_held_until_its_answer_is_whole_and_a_header_costs_more_than_its_bytes(tmp_path: Path) -> None:
    lines = b"X: y\r\n" * 1_000
    with RunningEdge(tmp_path, still_open) as edge:
        room, reply = edge.process.server.config.bounds.room, edge.reply()
        with raw(edge, f"GET /v1/replies/{reply}/events HTTP/1.1\r\n".encode() + AUTH + lines + b"\r\n") as stream:
            wait_for(lambda: metric(edge, "laneway_edge_streams") == 1)
            assert room.held > 1_000 * (protocol.HEADER_COST + len(b"X: y\r\n")) - room.free
            edge.write(reply, finished(1))
            wait_for(lambda: b"event: finished" in stream.recv(65536))
            wait_for(lambda: room.held == 0)


def test_bodies_count_until_they_are_read_and_together_have_a_bound(tmp_path: Path) -> None:
    long = {"text": "x" * 40_000}
    with RunningEdge(tmp_path) as edge, edge.client() as client:
        bodies, held = edge.inner.bodies, edge.process.server.config.bounds.room
        assert client.post("/v1/conversations/c1/messages", json=long).status_code == 202
        assert (bodies.held, held.held) == (0, 0)
        bodies.most = 20_000
        assert client.post("/v1/conversations/c2/messages", json=long).status_code == 503
        assert edge.post("hello", "c3").status_code == 202
        wait_for(lambda: bodies.held == held.held == 0)


def test_a_body_that_nobody_reads_counts_as_long_as_its_stream(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, still_open) as edge:
        room, reply = edge.process.server.config.bounds.room, edge.reply()
        head = f"GET /v1/replies/{reply}/events HTTP/1.1\r\nContent-Length: 60000\r\n".encode()
        with raw(edge, head + AUTH + b"\r\n" + b"x" * 60_000):
            wait_for(lambda: metric(edge, "laneway_edge_streams") == 1)
        wait_for(lambda: room.held == 0 and metric(edge, "laneway_edge_streams") == 0)


def test_http_1_0_gets_a_stream_without_chunks(edge: RunningEdge) -> None:
    sent = f"GET /v1/replies/{edge.reply()}/events HTTP/1.0\r\nAuthorization: Bearer alice-key\r\n\r\n"
    with raw(edge, sent.encode()) as connection:
        head, _, body = answer_of(connection).partition(b"\r\n\r\n")
    assert b"200 OK" in head and b"transfer-encoding" not in head and b"connection: close" in head
    assert body.startswith(b"event: accepted\nid: 0\n") and body.count(b"\n\n") == 6


def test_http_1_0_gets_whole_answers_too(edge: RunningEdge) -> None:
    for method, body in ((b"GET", b'{"status":"ok"}'), (b"HEAD", b"")):
        with raw(edge, method + b" /health HTTP/1.0\r\n\r\n") as connection:
            head, _, got = answer_of(connection).partition(b"\r\n\r\n")
        assert b"content-length: 15" in head and got == body


@pytest.mark.parametrize("value", [b"2", b"2 ", b"2\t ", b"  2"])
def test_blanks_around_a_header_are_no_part_of_it(edge: RunningEdge, value: bytes) -> None:
    head = f"GET /v1/replies/{edge.reply()}/events HTTP/1.1\r\nConnection: close\r\n".encode()
    with raw(edge, head + AUTH + b"Last-Event-ID:" + value + b"\r\n\r\n") as connection:
        answer = answer_of(connection)
    assert b"200 OK" in answer and b"id: 3\n" in answer and b"id: 2\n" not in answer


@pytest.mark.parametrize("sent", [b"GET /health HTTP/1.1\r\n\r\n", b"GET /x HTTP/1.1\r\n\r\n", b"nonsense\r\n\r\n"])
def test_every_answer_has_the_headers_that_protect_a_page(edge: RunningEdge, sent: bytes) -> None:
    with raw(edge, sent) as connection:
        head = connection.recv(65536).lower()
    policy = next(line for line in head.split(b"\r\n") if line.startswith(b"content-security-policy:"))
    assert b"script-src 'self';" in policy and b"unsafe" not in policy and b"frame-ancestors 'none'" in policy
    assert b"x-content-type-options: nosniff" in head and b"referrer-policy: no-referrer" in head
    assert b"strict-transport-security" not in head


def test_connections_send_at_once_and_notice_a_peer_that_vanished(edge: RunningEdge) -> None:
    seen: list[int] = []

    class Spied(protocol.EdgeProtocol):
        def connection_made(self, transport) -> None:  # type: ignore[no-untyped-def]
            super().connection_made(transport)
            options = (socket.TCP_NODELAY, socket.TCP_USER_TIMEOUT, socket.TCP_NOTSENT_LOWAT)
            own = transport.get_extra_info("socket")
            seen.extend(own.getsockopt(socket.IPPROTO_TCP, option) for option in options)

    edge.process.server.config.http_protocol_class, before = Spied, edge.process.server.config.http_protocol_class
    with edge.client() as client:
        client.get("/health")
    edge.process.server.config.http_protocol_class = before
    assert seen == [1, 20_000, 65_536]
