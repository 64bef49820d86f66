"""What is seen of a replica: what it was told, what it writes, what its load says."""

from __future__ import annotations

from engine.metrics import ReplicaMetrics
from engine.replica import Load
from schemas.events import GenerateAssigned, GenerateRequested, Origin, Sampling, pack_ids
from schemas.ids import ConversationId, Incarnation, ReplyId, UserId
from schemas.reply_records import Failed, Finished, Preempted, Started, Tokens
from topics.catalog import REPLIES
from topics.log import Place
from topics.outputs import Output

ME = Incarnation("one")
ORIGIN = Origin("generate.main.paid", 0, 0)
REPLY = ReplyId("r00000-x")


def value(metrics: ReplicaMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"laneway_replica_{name}", labels)


def told(prompt: int) -> GenerateAssigned:
    request = GenerateRequested(
        reply=REPLY,
        attempt=1,
        user=UserId("alice"),
        conversation=ConversationId("c"),
        model="m",
        pool="main",
        tier="paid",
        prompt=pack_ids(range(prompt)),
        accepted=b"",
        sampling=Sampling(max_tokens=5),
        deadline_ms=0,
    )
    return GenerateAssigned(ME, ORIGIN, request)


def write(metrics: ReplicaMetrics, *records: object) -> None:
    for record in records:
        metrics.wrote(Output(Place(REPLIES, 0), REPLY, record))


def test_cache_hits_are_a_share_of_the_prompts_that_were_started() -> None:
    metrics = ReplicaMetrics()
    metrics.read(told(40))
    write(metrics, Started(1, "main/0", ME, "print", ORIGIN, 32))
    assert value(metrics, "prompt_tokens_total") == 40
    assert value(metrics, "cached_tokens_total") == 32


def test_tokens_preemptions_and_ends_are_counted_as_they_are_written() -> None:
    metrics = ReplicaMetrics()
    write(metrics, Tokens(1, ME, 1, pack_ids((1, 2)), ("a", "b")), Preempted(1, ME))
    write(metrics, Finished(1, ME, "stop", 2), Failed("context_length_exceeded: 5 of 4"))
    assert (value(metrics, "tokens_total"), value(metrics, "preemptions_total")) == (2, 1)
    assert (value(metrics, "replies_total", how="stop"), value(metrics, "replies_total", how="failed")) == (1, 1)


def test_a_scrape_sees_the_load_of_that_moment() -> None:
    metrics, load = ReplicaMetrics(), Load()
    metrics.follow(lambda: load, 8, 100)
    assert value(metrics, "free_blocks") == 0
    load = Load(running=3, free_blocks=40, p99_step_ms=250.0)
    assert (value(metrics, "free_blocks"), value(metrics, "blocks")) == (40, 100)
    assert (value(metrics, "running_replies"), value(metrics, "step_p99_seconds")) == (3, 0.25)


def test_only_a_step_that_computed_counts_into_the_batch_size() -> None:
    metrics = ReplicaMetrics()
    for step, running in ((0, 0), (1, 4), (1, 4), (3, 2)):
        metrics.stepped(Load(step=step, running=running))
    assert value(metrics, "steps_total") == 3
    assert (value(metrics, "batch_replies_count"), value(metrics, "batch_replies_sum")) == (2, 6)
