"""What is seen of an edge: how fast tokens come, what it refuses, whether the log takes what it writes."""

from __future__ import annotations

import re

import httpx

from edge.pace import Pace
from schemas.reply_records import AttemptOpened
from tests.unit.edge.running_edge import RunningEdge, accepted, events, tokens, wait_for


def value(client: httpx.Client, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)$", client.get("/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_the_first_token_and_the_gaps_are_measured_by_token() -> None:
    first: list[float] = []
    between: list[float] = []
    times = iter((10.0, 11.5, 12.0, 14.0))
    pace = Pace(first.append, between.append, lambda: next(times))
    for record in (tokens(1, "a"), AttemptOpened(2), tokens(2, "b"), tokens(3, "c", "d")):
        pace.saw(record)
    assert (first, between) == ([1.5], [0.5, 1.0])


def test_a_reply_is_measured_by_the_edge_that_took_its_message(edge: RunningEdge) -> None:
    with edge.client() as client:
        names = [f"laneway_edge_{what}_seconds_count" for what in ("accept", "first_token", "between_tokens")]
        before = [value(client, name) for name in names]
        assert [event.event for event in events(client, edge.reply())][-1] == "finished"
        assert [value(client, name) for name in names] == [count + 1 for count in before]


def test_a_reply_that_another_edge_took_is_not_measured_again(edge: RunningEdge) -> None:
    edge.reply()
    stranger = edge.mint()
    with edge.client() as client:
        before = value(client, "laneway_edge_first_token_seconds_count")
        edge.write(stranger, accepted(edge.posted[-1]), tokens(1, "x"))
        assert client.get(f"/v1/replies/{stranger}").status_code == 200
        assert value(client, "laneway_edge_first_token_seconds_count") == before


def test_a_refusal_is_counted_by_its_code(edge: RunningEdge) -> None:
    with edge.client() as client:
        assert client.get("/v1/replies/nonsense").status_code == 404
        assert client.post("/v1/conversations/c/messages", json={"text": ""}).status_code == 400
        assert value(client, 'laneway_edge_refused_total{code="reply_not_found"}') >= 1
        assert value(client, 'laneway_edge_refused_total{code="invalid_value"}') >= 1


def test_an_edge_says_that_it_is_ready_and_that_the_log_takes_what_it_writes(edge: RunningEdge) -> None:
    with edge.client() as client:
        wait_for(lambda: value(client, "laneway_ready") == 1)
        assert value(client, "laneway_edge_writes") == 1
        assert value(client, 'laneway_edge_records_written_total{record="EdgeBeat"}') >= 1
