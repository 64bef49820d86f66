"""What readers and strangers cost an edge: a bounded amount, and nothing to anybody beside them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from edge.room import FREE_BYTES, MOST_BYTES
from schemas.ids import ReplyId
from tests.services.client import Client, frames_of, ids_of, text_of
from tests.services.running import PATIENCE_S, MendedStack, until
from tests.unit.edge.running_edge import RunningEdge
from tests.unit.edge.test_streams import metric, still_open

STREAMS, REPLIES, HALF_HEADS = 2000, 20, 500
WASTED_TOO = 1.5  # what an allocator takes beside what it gives
MOST_BYTES_A_STREAM = 48 * 1024
FLOODS, FLOOD = 20, 4 * 1024 * 1024
LONG = "=" * 64 * 3800  # the longest tokens there are: 400 KB of frames


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MendedStack]:
    """Its replica may be frozen for as long as it takes."""
    env = {"LANEWAY_SEND_TIMEOUT": "5", "LANEWAY_NO_REPLICA_AFTER": "3600"}
    with MendedStack(tmp_path_factory.mktemp("bounded"), env) as running:
        yield running


@pytest.fixture
def alice(bounded: MendedStack) -> Iterator[Client]:
    with Client(bounded) as client:
        yield client


@pytest.fixture
def edge(bounded: MendedStack) -> psutil.Process:
    """The process of the first edge."""
    [row] = [row for row in bounded._rows() if row.name == "edge-0"]
    return psutil.Process(row.pid)


@pytest.fixture(scope="module")
def long(bounded: MendedStack) -> ReplyId:
    with Client(bounded) as client:
        reply = client.say("long", LONG, max_tokens=4000)
        assert text_of(client.follow(reply)) == LONG
        return reply


def test_two_thousand_idle_streams_cost_little_and_all_hear_the_end(
    bounded: MendedStack, alice: Client, long: ReplyId, edge: psutil.Process
) -> None:
    bounded.freeze("replica-0")
    idle = [alice.say(f"idle-{n}", "woken up") for n in range(REPLIES)]
    before = edge.memory_info().rss
    with contextlib.ExitStack() as opened:
        streams = []
        for n in range(STREAMS):
            streams.append(opened.enter_context(alice.connect()))
            streams[-1].sendall(alice.head(f"/v1/replies/{idle[n % REPLIES]}/events", b"Connection: close"))
        bounded.until(lambda: alice.gauge("laneway_edge_streams") == STREAMS)
        each = (edge.memory_info().rss - before) / STREAMS
        print(f"{each / 1024:.1f} KiB of the edge's memory for each of {STREAMS} idle streams")
        assert each < MOST_BYTES_A_STREAM
        assert text_of(alice.follow(long)) == LONG
        bounded.thaw("replica-0")
        assert all(b"event: finished" in b"".join(iter(lambda s=s: s.recv(65536), b"")) for s in streams)


# Takes a little of a stream and is suspended, as a terminal's job is by Ctrl-Z; later it takes what is left.
SUSPENDED = """
import contextlib, os, signal, socket, sys
reader = socket.socket()
reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
reader.connect(("127.0.0.1", int(sys.argv[1])))
reader.sendall(bytes.fromhex(sys.argv[2]))
sys.stdout.buffer.write(reader.recv(1024))
os.kill(os.getpid(), signal.SIGSTOP)
with contextlib.suppress(ConnectionError):
    while chunk := reader.recv(65536):
        sys.stdout.buffer.write(chunk)
"""


def test_a_suspended_reader_is_cut_off_holds_up_nobody_and_resumes(
    bounded: MendedStack, alice: Client, long: ReplyId
) -> None:
    port, head = bounded.urls[0].rsplit(":", 1)[1], alice.head(f"/v1/replies/{long}/events").hex()
    before = alice.gauge("laneway_edge_slow_readers_total")
    with subprocess.Popen([sys.executable, "-c", SUSPENDED, port, head], stdout=subprocess.PIPE) as reader:
        bounded.until(lambda: psutil.Process(reader.pid).status() == psutil.STATUS_STOPPED)
        assert text_of(alice.follow(long)) == LONG
        bounded.until(lambda: alice.gauge("laneway_edge_slow_readers_total") == before + 1)
        reader.send_signal(signal.SIGCONT)
        taken, _ = reader.communicate(timeout=PATIENCE_S)
    frames = list(frames_of([unchunked(taken.partition(b"\r\n\r\n")[2])]))
    assert 0 < len(frames) < len(LONG) // 64
    assert text_of([*frames, *alice.follow(long, cursor=ids_of(frames)[-1])]) == LONG


def unchunked(body: bytes) -> bytes:
    """The whole chunks of a body that may break off."""
    whole = b""
    while b"\r\n" in body:
        size, _, rest = body.partition(b"\r\n")
        whole, body = whole + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return whole


def test_endless_heads_are_cut_off_before_they_are_held(
    bounded: MendedStack, alice: Client, edge: psutil.Process
) -> None:
    before = edge.memory_info().rss
    for _ in range(FLOODS):
        with alice.connect() as flood, contextlib.suppress(ConnectionError):
            flood.sendall(b"GET /health HTTP/1.1\r\n" + b"X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n" * (FLOOD // 34))
    assert alice.ask("GET", "/health").status_code == 200
    assert edge.memory_info().rss - before < FLOOD


def test_five_hundred_half_heads_are_held_only_as_far_as_there_is_room(
    bounded: MendedStack, alice: Client, edge: psutil.Process
) -> None:
    before, head = edge.memory_info().rss, b"GET /health HTTP/1.1\r\n" + b"X-Long: yyyyyyyy\r\n" * 3_500
    with contextlib.ExitStack() as opened:
        for _ in range(HALF_HEADS):
            flood = opened.enter_context(alice.connect())
            with contextlib.suppress(ConnectionError):
                flood.sendall(head)
        grown = edge.memory_info().rss - before
        print(f"{grown / 2**20:.0f} MiB of the edge's memory for {HALF_HEADS} half heads of {len(head)} bytes")
        assert alice.ask("GET", "/health").status_code == 200
    assert grown < WASTED_TOO * (MOST_BYTES + HALF_HEADS * FREE_BYTES)
    assert alice.ask("GET", "/metrics").text.count('laneway_edge_requests_total{method="none",status="503"}') == 1


@pytest.fixture
def far_away() -> Iterator[tuple[str, str]]:
    """A network of its own, and this machine's address in it."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("needs root and iproute2; unit tests look at the socket option itself")
    name, here = f"lw{os.getpid()}", "10.213.77.1"
    script = f"""
        ip netns add {name} && ip link add {name}a type veth peer name {name}b netns {name}
        ip addr add {here}/30 dev {name}a && ip link set {name}a up
        ip -n {name} addr add 10.213.77.2/30 dev {name}b && ip -n {name} link set {name}b up"""
    made = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=False)
    try:
        if made.returncode:
            pytest.skip(f"no network namespaces here: {made.stderr}")
        yield name, here
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def test_a_peer_that_vanishes_without_a_word_is_noticed(far_away: tuple[str, str], tmp_path: Path) -> None:
    namespace, here = far_away
    with RunningEdge(tmp_path, still_open, host=here, send_timeout=1.0, keep_alive=0.2) as edge:
        edge.url = f"http://{here}:{edge.port}"
        url, auth = f"{edge.url}/v1/replies/{edge.reply()}/events", "Authorization: Bearer alice-key"
        curl = ["ip", "netns", "exec", namespace, "curl", "-sN", "-H", auth, url]
        with subprocess.Popen(curl, stdout=subprocess.DEVNULL) as peer:
            until(lambda: metric(edge, "laneway_edge_streams") == 1)
            subprocess.run(["ip", "-n", namespace, "route", "add", "blackhole", here], check=True)
            until(lambda: metric(edge, "laneway_edge_streams") == 0)
            assert peer.poll() is None
            peer.kill()
