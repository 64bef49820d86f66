"""The parts of chaos: plans that repeat, faults that fall where they should, clients that keep every byte."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import pytest

from infra.top import Samples
from tests.chaos.client import Client, Edges
from tests.chaos.faults import Faults
from tests.chaos.memory import MIB, MOST_GROWN_OF_OTHERS, SETTLED_S, Memory
from tests.chaos.plan import TARGETS, Ask, Cut, Fault, plan_of
from tests.chaos.reading import held, unexpected
from tests.chaos.troubled import TroubledStack
from tests.checker.history import History, Request

REPLY = "r00000-one"
TOKENS = 6


def frames(after: int) -> list[bytes]:
    accepted = b'event: accepted\nid: 0\ndata: {"reply":"r00000-one"}\n\n'
    tokens = [b'event: token\nid: %d\ndata: {"text":"%d"}\n\n' % (n, n) for n in range(1, TOKENS + 1)]
    return [accepted, *tokens, b"event: finished\nid: %d\ndata: {}\n\n" % (TOKENS + 1)][after + 1 :]


class Edge(BaseHTTPRequestHandler):
    """Takes any message; its streams break off in the middle of their third frame, but for the last."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._stream(frames(-1))

    def do_GET(self) -> None:
        self._stream(frames(int(self.headers["Last-Event-ID"])))

    def _stream(self, due: list[bytes]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("X-Request-Id", REPLY)
        self.end_headers()
        body = b"".join(due[:2]) + due[2][:9] if len(due) > 3 else b"".join(due)
        self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body) + (b"" if len(due) > 3 else b"0\r\n\r\n"))
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def edges() -> Iterator[Edges]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Edge)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield Edges((f"http://127.0.0.1:{server.server_port}",), "key")
    server.shutdown()
    serving.join()
    server.server_close()


def asked(**how: Any) -> Ask:
    return Ask("c", "ann", "c", "hello", 0.0, streams=True, **how)


def test_a_client_goes_on_after_the_last_whole_event_and_keeps_every_byte(edges: Edges) -> None:
    client = Client("c", asked(), edges)
    client.run()
    streams = client.streams()
    assert [(stream.after, stream.whole) for stream in streams] == [(None, False), (1, False), (3, False), (5, True)]
    assert b"".join(stream.body.rpartition(b"\n\n")[0] + b"\n\n" for stream in streams) == b"".join(frames(-1))
    assert streams[0].body.endswith(frames(1)[0][:9])
    assert client.done == "finished" and not any(request.broken for request in client.requests())


def test_a_client_that_leaves_is_done_and_one_without_an_edge_asks_again(edges: Edges) -> None:
    client = Client("c", asked(leaves_after=1, leaves_how="silent"), Edges(("http://127.0.0.1:1", *edges.urls), "", 0))
    client.run()
    assert (client.done, len(client.unread)) == ("left", 1)
    assert client.requests()[0].broken and client.requests()[-1].answers == ("200",)
    client.close()


def test_a_client_comes_back_after_each_cut(edges: Edges) -> None:
    client = Client("c", asked(cuts=(Cut(0, "closed"), Cut(2, "reset"))), edges)
    client.run()
    assert client.done == "finished"
    assert [stream.whole for stream in client.streams()][-1]


def test_the_same_seed_is_the_same_plan_and_seeds_reach_every_fault() -> None:
    assert plan_of(7, 2) == plan_of(7, 2) != plan_of(8, 2)
    plans = [plan_of(seed, 2) for seed in range(12)]
    assert {fault.kind for plan in plans for fault in plan.faults} == set(TARGETS)
    hows = {cut.how for plan in plans for ask in plan.asks for cut in ask.cuts}
    assert hows == {"closed", "reset", "silent"}


class Noted:
    """A stack that only notes what is done to it."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.down: set[str] = set()
        self.bytes: dict[str, tuple[float, int]] = {}

    def up(self, name: str) -> bool:
        return name not in self.down

    def resident(self) -> dict[str, tuple[float, int]]:
        return self.bytes


def test_a_fault_falls_on_what_is_up_and_is_over_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Noted()
    noted.down.add("intake")
    begin, over = (lambda s, n: s.did.append(f"hurt {n}")), (lambda s, n: s.did.append(f"well {n}"))
    monkeypatch.setattr("tests.chaos.faults.KINDS", {"freeze": (begin, over)})
    due = (Fault("f0", "freeze", "intake", 1, 1), Fault("f1", "freeze broker", "kafka", 2, 5))
    faults = Faults(cast(TroubledStack, noted), due)
    for now in (0.5, 1.5, 2.5, 6.5, 7.5):
        faults.happen(now)
    assert noted.did == ["hurt kafka", "well kafka"]
    assert (faults.over, dict(faults.fallen)) == (True, {("freeze broker", "kafka"): 1})


def test_memory_is_compared_with_what_a_settled_process_had() -> None:
    noted, memory = Noted(), Memory()
    for now, resident in ((0.0, 10 * MIB), (SETTLED_S, 90 * MIB), (50.0, 90 * MIB + MOST_GROWN_OF_OTHERS)):
        noted.bytes = {"intake": (0.0, resident), "router": (0.0, resident + (now > 40))}
        memory.look(cast(TroubledStack, noted), now)
    assert [violation.found for violation in memory.too_much()] == [f"router: {MOST_GROWN_OF_OTHERS // MIB} MiB more"]


def test_what_a_process_holds_or_does_not_say_is_left() -> None:
    said: dict[str, Samples] = {
        "edge-0": {"laneway_edge_streams": {(): 2.0}},
        "replica-0": {"laneway_replica_blocks": {(): 64.0}, "laneway_replica_free_blocks": {(): 61.0}},
        "router": {"laneway_queue_requests": {(("tier", "paid"),): 1.0, (("tier", "free"),): 3.0}},
    }

    class Asked:
        names = ("kafka", "intake", *said)
        metrics = staticmethod(said.get)

    left = {what: count for what, count in held(cast(TroubledStack, Asked())).items() if count}
    assert left == {
        "intake that does not answer": 1,
        "streams of edge-0": 2,
        "blocks of replica-0": 3,
        "queued requests of router": 4,
    }


def test_an_answer_that_no_client_should_get_is_told() -> None:
    requests = (Request("c", "post", ("202",)), Request("c", "get after 3", ("404",)), Request("d", "post", (), True))
    [violation] = unexpected(History((), requests=requests))
    assert violation.found == ("c", "get after 3", "404")
