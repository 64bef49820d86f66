"""The API's document: every route is in it, it is OpenAPI, and it says of bodies what parsers and answers do."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from edge import errors
from edge.app import ROUTES
from edge.config import Defaults, EdgeConfig
from edge.errors import ApiError, BadRequest
from edge.openapi import IMPLIED, MEANINGS, document
from edge.openapi_answers import event_schema
from edge.openapi_operations import OPERATIONS
from edge.requests import read_message
from schemas import reply_records as r
from tests.unit.edge.running_edge import RunningEdge, accepted, events, started, tokens

DOCUMENT = document((route for route in ROUTES if route.include_in_schema), EdgeConfig(models=("m1", "m2")))
EXAMPLES = [
    (path, method, example["value"])
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    for content in operation.get("requestBody", {}).get("content", {}).values()
    for example in content["examples"].values()
]


def validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/components/schemas/{schema}", "components": DOCUMENT["components"]})


def test_every_route_is_in_the_document_and_nothing_else() -> None:
    served = {
        (route.path_format, method.lower())
        for route in ROUTES
        if route.path != "/" and not route.path.startswith("/page/")
        for method in (route.methods or set()) - {IMPLIED}
    }
    assert {(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods} == served
    assert len(OPERATIONS) == len(served)


def test_the_document_is_openapi() -> None:
    OpenAPIV31SpecValidator(DOCUMENT).validate()


def test_every_error_says_what_it_means() -> None:
    named = {kind.__name__ for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ApiError)}
    assert MEANINGS.keys() == named - {"ApiError"}


def test_an_edge_serves_it_to_anybody_and_as_safely_as_all_else(edge: RunningEdge) -> None:
    with edge.client(None) as client:
        answer = client.get("/openapi.json")
    assert answer.json() == DOCUMENT
    assert (answer.headers["content-type"], answer.headers["x-content-type-options"]) == ("application/json", "nosniff")


@pytest.mark.parametrize(("path", "method", "body"), [example for example in EXAMPLES if example[1] == "post"])
def test_an_example_works_as_it_stands(edge: RunningEdge, path: str, method: str, body: dict[str, Any]) -> None:
    with edge.client() as client:
        answer = client.request(method, path.format(conversation="c1"), json=body)
    assert answer.status_code in (200, 202), answer.text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 2.1), ("temperature", -0.1), ("top_p", 0), ("top_p", 1.1), ("max_tokens", 0), ("top_k", -2),
        ("seed", 2**63), ("top_logprobs", 21), ("stop", ["x"] * 5), ("stop", ""), ("deadline_s", 0), ("model", "m3"),
        ("frequency_penalty", 3), ("ignore_eos", 1), ("mood", "good"), ("text", " "), ("min_tokens", 1.5),
    ],
)  # fmt: skip
def test_the_document_forbids_what_the_parser_refuses(field: str, value: object) -> None:
    body = {"text": "hi", field: value}
    with pytest.raises(BadRequest):
        read_message(orjson.dumps(body), Defaults(("m1", "m2"), 600.0))
    assert not validator("Message").is_valid(body)
    assert validator("Message").is_valid({"text": "hi"})


@pytest.mark.parametrize(
    "end",
    [
        r.Finished(1, "replica-1", "stop", 2),
        r.Stopped("user"),
        r.Failed("deadline"),
        r.Flagged(2, "violence"),
    ],
)
def test_an_events_data_have_the_shape_that_the_document_says(edge: RunningEdge, end: Any) -> None:
    checked = isinstance(end, r.Flagged)
    edge.script = lambda posted: [accepted(posted, checked=checked), started(), tokens(1, "a", "b"), end]
    with edge.client() as client:
        seen = list(events(client, edge.reply()))
    assert [event.event for event in seen[:3]] == ["accepted", "queued", "token"]
    for event in seen:
        validator(event_schema(event.event)).validate(orjson.loads(event.data))
