"""What the OpenAPI document says is what an edge does, as schemathesis tries it: good bodies and bad, strange methods,
missing keys, calls after one another; no server error, and no status, header, media type or shape that is not in it.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

from schemas.events import MessagePosted, Turn, TurnSaved
from schemas.ids import user_message_id
from schemas.reply import Record
from tests.unit.edge.running_edge import RunningEdge, three_tokens
from topics.store.contract import SavedAt

EXAMPLES = 5
# What fields say of each other, and what a page's name is, no schema tells: a body that it allows may be refused.
MORE_THAN_A_SCHEMA = ("post_message", "create_completion", "list_conversations", "get_conversation")
NO_COOKIE = {"GET /v1/session"}


class SavingEdge(RunningEdge):
    """Its pipeline saves what a user has said as well."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, script=self._save_and_answer)
        self._offsets = itertools.count()

    def _save_and_answer(self, posted: MessagePosted) -> list[Record]:
        now_ms = time.time_ns() // 1_000_000
        turn = Turn(user_message_id(posted.reply), None, "user", posted.text, b"", "t", "complete")
        saved = TurnSaved(posted.user, posted.conversation, turn, posted.reply, posted.model, now_ms, posted_ms=now_ms)
        self.store.save([SavedAt(next(self._offsets), saved)])
        return three_tokens(posted)


def config(edge: RunningEdge) -> dict[str, Any]:
    made = {"deterministic": True, "max-examples": EXAMPLES, "database": "none", "allow-extra-parameters": False}
    loose = {"checks": {"positive_data_acceptance": {"enabled": False}}}
    return {
        "seed": 1,
        "base-url": edge.url,
        "headers": {"Authorization": "Bearer alice-key"},
        "generation": made,
        "operations": [{"include-operation-id": name, **loose} for name in MORE_THAN_A_SCHEMA],
    }


def test_an_edge_does_what_its_document_says(tmp_path: Path) -> None:
    with SavingEdge(tmp_path) as edge, edge.client() as client:
        edge.reply("c1")
        told = SchemathesisConfig.from_dict(config(edge))
        api = schemathesis.openapi.from_dict(client.get("/openapi.json").json(), config=told)
        happened = list(from_schema(api).execute())
    troubles = [event for event in happened if isinstance(event, events.NonFatalError | events.FatalError)]
    [end] = [event for event in happened if isinstance(event, events.EngineFinished)]
    assert (troubles, end.failures) == ([], [])
    assert (
        operations_that_worked(happened) == {operation.ok().label for operation in api.get_all_operations()} - NO_COOKIE
    )


def operations_that_worked(happened: list[events.EngineEvent]) -> set[str]:
    """Those that answered what was asked for at least once, which a test of refusals alone would not show."""
    found = defaultdict(set)
    for event in happened:
        if isinstance(event, events.ScenarioFinished):
            for name, interaction in event.recorder.interactions.items():
                case = event.recorder.cases[name].value
                found[case.operation.label].add(interaction.response and interaction.response.status_code)
    return {label for label, statuses in found.items() if statuses & {200, 202, 204}}
