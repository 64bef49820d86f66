"""What the OpenAPI document says is what an edge does, as schemathesis tries it: good bodies and bad, strange methods,
missing keys, calls after one another; no server error, and no status, header, media type or shape that is not in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

from tests.unit.edge.running_edge import RunningEdge

EXAMPLES = 15
# What fields say of each other, and what a page's name is, no schema tells: a body that it allows may be refused.
MORE_THAN_A_SCHEMA = ("post_message", "create_completion", "list_conversations", "get_conversation")


def config(edge: RunningEdge) -> dict[str, Any]:
    return {
        "seed": 1,
        "base-url": edge.url,
        "headers": {"Authorization": "Bearer alice-key"},
        "generation": {
            "deterministic": True,
            "max-examples": EXAMPLES,
            "database": "none",
            "allow-extra-parameters": False,
        },
        "operations": [
            {"include-operation-id": name, "checks": {"positive_data_acceptance": {"enabled": False}}}
            for name in MORE_THAN_A_SCHEMA
        ],
    }


def test_an_edge_does_what_its_document_says(tmp_path: Path) -> None:
    with RunningEdge(tmp_path) as edge, edge.client() as client:
        told = SchemathesisConfig.from_dict(config(edge))
        api = schemathesis.openapi.from_dict(client.get("/openapi.json").json(), config=told)
        happened = list(from_schema(api).execute())
    for event in happened:
        print(type(event).__name__, getattr(event, "label", ""), getattr(event, "elapsed_time", ""))
    troubles = [event.info for event in happened if isinstance(event, events.NonFatalError)]
    [end] = [event for event in happened if isinstance(event, events.EngineFinished)]
    assert (troubles, end.failures) == ([], [])
