"""Every answer has one of two shapes: what was asked for, or OpenAI's error."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from schemas.codec import schemas_by_confluent_id
from tests.unit.edge.running_edge import RunningEdge, wait_for


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/v1/models/", 404),
        ("GET", "/v1/conversations/c1/messages", 405),
        ("DELETE", "/v1/replies/x", 405),
        ("GET", "/v1/replies/x/stop", 405),
        ("GET", "/schemas/ids/1", 404),
        ("GET", "/schemas/ids/x", 404),
        ("GET", "/v1/replies/%00", 404),
        ("GET", "/v1/replies/" + "x" * 5000, 404),
    ],
)
def test_a_refusal_has_openais_shape(edge: RunningEdge, method: str, path: str, status: int) -> None:
    with edge.client() as client:
        answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()["error"]) == {"message", "type", "code", "param"}


def test_an_error_that_nobody_expected_tells_nothing(
    edge: RunningEdge, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(edge.inner, "store", object())
    with edge.client() as client:
        answer = client.get("/v1/conversations")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert "attribute" not in answer.text
    wait_for(lambda: "has no attribute 'conversations'" in caplog.text)


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/v1/conversations/c1", ["DELETE", "GET", "HEAD", "PATCH"]),
        ("/v1/session", ["DELETE", "GET", "HEAD", "POST"]),
        ("/v1/chat/completions", ["POST"]),
    ],
)
def test_a_wrong_method_is_told_all_that_the_path_has(edge: RunningEdge, path: str, methods: list[str]) -> None:
    with edge.client() as client:
        answer = client.put(path)
    assert (answer.status_code, answer.headers["allow"].split(", ")) == (405, methods)


def test_the_answer_to_a_crash_is_counted_named_and_open_to_listed_origins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunningEdge(tmp_path, origins=("https://chat.example",)) as edge, edge.client() as client:
        monkeypatch.setattr(edge.inner, "store", object())
        answer = client.get("/v1/conversations", headers={"Origin": "https://chat.example"})
        counted = client.get("/metrics").text
    assert (answer.status_code, answer.headers["x-request-id"][:4]) == (500, "req-")
    assert answer.headers["access-control-allow-origin"] == "https://chat.example"
    assert 'laneway_edge_requests_total{method="GET",status="500"} 1.0' in counted
    assert 'laneway_edge_refused_total{code="internal"} 1.0' in counted


def test_the_models_are_listed_as_openai_does(edge: RunningEdge) -> None:
    with edge.client() as client:
        listed = client.get("/v1/models").json()
    assert [model["id"] for model in listed["data"]] == ["m1", "m2"]
    assert {model["object"] for model in listed["data"]} == {"model"}


def test_the_probes_need_no_key(edge: RunningEdge) -> None:
    with edge.client(None) as client:
        wait_for(lambda: client.get("/ready").json() == {"ready": True, "missing": []})
        assert client.get("/health").json() == {"status": "ok"}
        assert "laneway_edge_requests_total" in client.get("/metrics").text
        assert client.get("/v1/models").status_code == 401


def test_a_schema_is_found_by_its_confluent_id(edge: RunningEdge) -> None:
    identifier, schema = next(iter(schemas_by_confluent_id().items()))
    with edge.client(None) as client:
        assert client.get(f"/schemas/ids/{identifier}").json() == {"schema": schema}


def test_only_listed_origins_are_let_in(tmp_path: Path) -> None:
    def asked(client: httpx.Client, origin: str) -> httpx.Response:
        wanted = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        return client.options("/v1/conversations/c1/messages", headers=wanted)

    with RunningEdge(tmp_path, origins=("https://chat.example",)) as edge, edge.client() as client:
        assert asked(client, "https://chat.example").headers["access-control-allow-origin"] == "https://chat.example"
        assert "access-control-allow-origin" not in asked(client, "https://evil.example").headers
