"""What is seen of a replica: its load, its totals, what it writes."""

from __future__ import annotations

from dataclasses import replace

from engine.engine import Totals
from engine.load import Requests
from engine.metrics import ReplicaMetrics
from schemas.events import DeadLettered, Origin, pack_ids
from schemas.ids import Incarnation
from schemas.reply_records import Preempted, Tokens
from topics.catalog import REPLIES
from topics.log import Place
from topics.outputs import Output

ME = Incarnation("one")


def value(metrics: ReplicaMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"laneway_{name}", labels)


def test_totals_are_counted_on_from_what_was_told_before() -> None:
    metrics = ReplicaMetrics()
    first = Totals(prompt_tokens=40, cached_tokens=32, preemptions=1, steps=2)
    for totals in (first, first, replace(first, prompt_tokens=50, steps=3)):
        metrics.stepped(totals, Requests(), 4)
    assert [value(metrics, f"replica_{name}_tokens_total") for name in ("prompt", "cached")] == [50, 32]
    assert (value(metrics, "replica_steps_total"), value(metrics, "replica_preemptions_total")) == (3, 1)
    assert value(metrics, "replica_batch_replies_count") == 2


def test_requests_are_counted_by_their_end() -> None:
    metrics = ReplicaMetrics()
    for requests in (Requests(stopped=2), Requests(stopped=3, aborted=1)):
        metrics.stepped(Totals(), requests, 0)
    assert value(metrics, "replica_requests_total", end="stopped") == 3
    assert value(metrics, "replica_requests_total", end="aborted") == 1


def test_tokens_and_dead_letters_are_counted_as_they_are_written() -> None:
    metrics, origin = ReplicaMetrics(), Origin("lanes.main.paid", 0, 0)
    for event in (
        Tokens(1, ME, 1, pack_ids((1, 2)), ("a", "b")),
        Preempted(1, ME),
        DeadLettered(origin, "replica main/0", "bad", None, None),
    ):
        metrics.wrote(Output(Place(REPLIES, 0), "r", event))
    assert value(metrics, "replica_tokens_total") == 2
    assert value(metrics, "dead_letters_total", stage="replica") == 1
