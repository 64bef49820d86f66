"""Clients that come back, as they do: cut in any byte, again and again, several at once, or asking now and then."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import httpx

from schemas import reply_records as r
from tests.unit.edge.running_edge import RunningEdge, events, finished, tokens, wait_for
from tests.unit.edge.test_streams import metric, still_open

TOKENS = 5


def whole_frames(text: str) -> list[str]:
    return [frame + "\n\n" for frame in text.split("\n\n")[:-1]]


def last_id(text: str) -> int | None:
    """What a client has as its cursor that got this much: an event counts with its blank line."""
    ids = [line for frame in whole_frames(text) for line in frame.splitlines() if line.startswith("id: ")]
    return int(ids[-1].removeprefix("id: ")) if ids else None


def numbered(text: str) -> list[str]:
    return [frame for frame in whole_frames(text) if "\nid: " in frame]


def body(client: httpx.Client, reply: str, cursor: int | None) -> str:
    headers = {} if cursor is None else {"Last-Event-ID": str(cursor)}
    return client.get(f"/v1/replies/{reply}/events", headers=headers).text


def test_cut_in_any_byte_also_in_those_of_the_end_it_goes_on_where_it_was(edge: RunningEdge) -> None:
    reply = edge.reply()
    with edge.client() as client:
        whole = body(client, reply, None)
        for cut in range(len(whole)):
            cursor = last_id(whole[:cut])
            rest = body(client, reply, cursor)
            assert numbered(whole[:cut]) + numbered(rest) == numbered(whole), f"cut after {cut} bytes"


def test_the_cursor_moves_on_over_one_resume_after_the_other(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, still_open) as edge, edge.client() as client:
        reply, heard = edge.reply(), list[str]()
        for n in range(2, TOKENS + 1):
            edge.write(reply, tokens(n, str(n)))
            for event in events(client, reply, int(heard[-1]) if heard else None):
                heard += [event.id] if event.event in ("accepted", "token") else []
                if event.id == str(n):
                    break
        edge.write(reply, finished(TOKENS))
        heard += [event.id for event in events(client, reply, int(heard[-1]))]
    assert heard == [str(n) for n in range(TOKENS + 2)]


def test_two_tabs_at_different_places_and_the_end_of_one_is_not_the_others(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, still_open) as edge, edge.client() as one, edge.client() as two:
        reply = edge.reply()
        ahead, behind = events(one, reply, 1), events(two, reply)
        assert next(behind).id == "0"
        edge.write(reply, tokens(2, "b"), tokens(3, "c"))
        assert [next(ahead).id, next(ahead).id] == ["2", "3"]
        behind.close()
        edge.write(reply, finished(3))
        assert [event.id for event in ahead] == ["4"]
        assert [event.id for event in events(two, reply, 0) if event.event != "queued"] == ["1", "2", "3", "4"]


def test_whoever_asks_for_the_state_listens_for_that_moment(tmp_path: Path) -> None:
    with RunningEdge(tmp_path, still_open) as edge, edge.client() as client:
        reply = edge.reply()
        for _ in range(2):
            assert client.get(f"/v1/replies/{reply}").json()["state"] == "running"
        kinds = (r.ListenerAttached, r.ListenerDetached)
        wait_for(lambda: sum(isinstance(record, kinds) for record in edge.records(reply)) == 4)
        told = [record for record in edge.records(reply) if isinstance(record, kinds)]
        assert [type(record) for record in told] == [*kinds, *kinds]
        assert all(a.stream == b.stream for a, b in list(pairwise(told))[::2])
        assert metric(edge, "laneway_edge_streams") == 0
        edge.write(reply, finished(1))
        wait_for(lambda: client.get(f"/v1/replies/{reply}").json()["state"] == "finished")
        before = len(edge.records(reply))
        assert client.get(f"/v1/replies/{reply}").status_code == 200
        assert len(edge.records(reply)) == before
