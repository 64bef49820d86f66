"""What an operator sees of a running stack: every process's port, its logs, `laneway status` and `laneway top`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from infra.local.stack import laneway
from infra.local.state import DataFolder
from infra.local.status import get
from infra.top import Samples, parse
from tests.services.client import Client
from tests.services.running import until
from tests.services.terminal import CTRL_C, Terminal
from tests.services.test_commands import run
from tests.stack import Stack

TEXT = "a sentence that nobody may log"


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack of its own, so that its counters are; its logs are for machines."""
    env = {"LANEWAY_LOG": "json"}
    with Stack(tmp_path_factory.mktemp("watched"), env, ("wanda",)) as running:
        yield running


@pytest.fixture
def wanda(watched: Stack) -> Iterator[Client]:
    with Client(watched, "wanda") as client:
        yield client


def urls(stack: Stack) -> dict[str, str]:
    return dict(DataFolder(stack.folder).running().metrics)


def scraped(stack: Stack, name: str) -> Samples:
    body = get(urls(stack)[name], "/metrics")
    assert body is not None, name
    return parse(body.decode())


def total(stack: Stack, name: str, series: str, **labels: str) -> float:
    """The sum of a series over the labels that are not given."""
    found = scraped(stack, name).get(series, {}).items()
    return sum(value for of, value in found if labels.items() <= dict(of).items())


def test_every_process_is_ready_and_serves_its_metrics(watched: Stack) -> None:
    assert set(urls(watched)) == {"stages", "replica-0", "edge-0", "edge-1"}
    for name, url in urls(watched).items():
        until(lambda url=url: json.loads(get(url, "/ready") or b"{}") == {"ready": True, "missing": []})
        assert json.loads(get(url, "/health") or b"{}") == {"status": "ok"}
        assert total(watched, name, "laneway_ready") == 1
        assert total(watched, name, "process_resident_memory_bytes") > 1e6


def test_one_chat_moves_the_counters_of_every_process(watched: Stack, wanda: Client) -> None:
    asked = (
        ("edge-0", "laneway_edge_first_token_seconds_count", {}),
        ("stages", "laneway_replies_settled_total", {"state": "finished"}),
        ("stages", "laneway_stage_records_written_total", {"stage": "router", "record": "Dispatched"}),
        ("replica-0", "laneway_replica_requests_total", {"end": "stopped"}),
    )
    before = [total(watched, name, series, **labels) for name, series, labels in asked]
    wanda.follow(wanda.say("c", TEXT))
    until(lambda: [total(watched, name, series, **labels) for name, series, labels in asked] == [n + 1 for n in before])
    written = total(watched, "replica-0", "laneway_replica_tokens_total")
    assert written == total(watched, "stages", "laneway_settled_tokens_total", kind="completion") > 0


def test_logs_are_objects_without_a_users_text_or_a_key(watched: Stack, wanda: Client) -> None:
    wanda.follow(wanda.say("logged", TEXT))
    for name in urls(watched):
        text = watched.log(name)
        lines = [json.loads(line) for line in text.splitlines()]
        assert lines and all({"time", "level", "process", "message"} <= line.keys() for line in lines), name
        assert TEXT not in text and watched.keys["wanda"] not in text


def test_top_prints_one_picture_of_the_cell(watched: Stack, wanda: Client) -> None:
    reply = wanda.say("topped", TEXT)
    wanda.follow(reply)
    done = run(watched, "top", "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(word in done.stdout for word in (reply, "FINISHED", "main/0", "ready", "background", "settlement"))
    assert TEXT not in done.stdout and "missing" not in done.stdout


def test_top_draws_on_fits_a_terminal_that_shrinks_and_leaves_it_as_it_was(watched: Stack, wanda: Client) -> None:
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    command = laneway("top")
    with Terminal(command, {**env, "LANEWAY_DATA": str(watched.folder)}, rows=50, columns=140) as terminal:
        terminal.until("main/0")
        reply = wanda.say("drawn", TEXT)
        assert "settlement" in "\n".join(terminal.until(reply))
        terminal.resize(24, 80)
        until(lambda: all(len(line) <= 80 for line in terminal.until("main/0")))
        assert len(terminal.until("main/0")) <= 24
        terminal.press(CTRL_C)
        assert terminal.exit_status() == 0
        assert terminal.is_as_before()


def test_status_looks_into_the_processes_and_says_what_is_missing(watched: Stack) -> None:
    done = run(watched, "status", "--json")
    shown = json.loads(done.stdout)
    assert (done.returncode, shown["missing"], shown["metrics"]) == (0, {}, urls(watched))
    watched.freeze("edge-1")  # not the stages: a group gives the places of a silent member away
    try:
        done = run(watched, "status")
    finally:
        watched.thaw("edge-1")
    assert done.returncode == 1
    assert "missing: http://" in done.stdout and "/ready does not answer" in done.stdout
    until(lambda: run(watched, "status").returncode == 0)


def test_a_lost_broker_is_missing_everywhere_and_top_says_so(watched: Stack) -> None:
    watched.kill("kafka")
    done = run(watched, "top", "--once")
    assert done.returncode == 1
    assert f"no broker answers at {watched.kafka}" in done.stderr
    for name in ("replica-0", "edge-0"):
        until(lambda name=name: b'"kafka: ' in (get(urls(watched)[name], "/ready") or b""))
