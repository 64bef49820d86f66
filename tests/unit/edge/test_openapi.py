"""The API's document: every route is in it, it is OpenAPI, and what it says of bodies is what parsers and answers do."""

from __future__ import annotations

from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from edge.app import ROUTES
from edge.config import EdgeConfig
from edge.openapi import IMPLIED, document
from edge.openapi_operations import OPERATIONS
from tests.unit.edge.running_edge import RunningEdge

DOCUMENT = document((route for route in ROUTES if route.include_in_schema), EdgeConfig(models=("m1", "m2")))


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


def test_an_edge_serves_it_to_anybody_and_as_safely_as_all_else(edge: RunningEdge) -> None:
    with edge.client(None) as client:
        answer = client.get("/openapi.json")
    assert answer.json() == DOCUMENT
    assert (answer.headers["content-type"], answer.headers["x-content-type-options"]) == ("application/json", "nosniff")
    assert answer.headers["x-request-id"].startswith("req-")
