"""What a measurement compares the edge with still runs on the edge's own server."""

import threading

import httpx

from tests.benchmarks import bare
from tests.unit.edge.running_edge import wait_for


def test_a_bare_stream_makes_its_own_events() -> None:
    server = bare.server(0)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        text = httpx.get(f"http://127.0.0.1:{port}/3", trust_env=False).text
    finally:
        server.should_exit = True
        thread.join()
    assert [line for line in text.splitlines() if line.startswith("id: ")] == ["id: 1", "id: 2", "id: 3"]
