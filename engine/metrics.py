"""What Prometheus reads of a replica: its load and totals as it notes them, and the tokens it writes as they leave."""

from __future__ import annotations

from dataclasses import asdict

from prometheus_client import Counter, Gauge, Histogram

from engine.engine import Totals
from engine.load import Requests
from engine.replica import Replica
from schemas.events import DeadLettered
from schemas.reply_records import Tokens
from topics.outputs import Output
from topics.telemetry.metrics import Metric, new_registry

BATCH_BUCKETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

RUNNING = Metric(Gauge, "laneway_replica_running_replies", "Replies that it computes")
WAITING = Metric(Gauge, "laneway_replica_waiting_replies", "Replies that wait for room, preempted ones among them")
CAPACITY = Metric(Gauge, "laneway_replica_capacity_replies", "Replies that it may compute at once")
BLOCKS = Metric(Gauge, "laneway_replica_blocks", "Blocks of 16 tokens for keys and values")
FREE_BLOCKS = Metric(Gauge, "laneway_replica_free_blocks", "Blocks to give out, shareable prefixes among them")
P99_STEP = Metric(Gauge, "laneway_replica_step_p99_seconds", "99th percentile of the last 200 steps")
DROPPED = Metric(Gauge, "laneway_replica_dropped_replies", "Attempts given up that wait for the supervisor's fence")
BATCH = Metric(Histogram, "laneway_replica_batch_replies", "Replies that run, seen after each step", (), BATCH_BUCKETS)
TOKENS = Metric(Counter, "laneway_replica_tokens_total", "Tokens that it has written")
DEAD = Metric(Counter, "laneway_dead_letters_total", "Records put aside in the topic dead-letters", ("stage",))
STEPS = Metric(Counter, "laneway_replica_steps_total", "Steps that the engine has computed")
PROMPT = Metric(Counter, "laneway_replica_prompt_tokens_total", "Tokens that replies began with")
CACHED = Metric(Counter, "laneway_replica_cached_tokens_total", "Tokens of these that the prefix cache had")
PREEMPTIONS = Metric(Counter, "laneway_replica_preemptions_total", "Replies put back because blocks ran out")
GIVEN_UP = Metric(Counter, "laneway_replica_given_up_total", "Replies preempted too often, for another to continue")
ENDED = Metric(Counter, "laneway_replica_requests_total", "Requests that have come to an end, by which", ("end",))
METRICS = (
    *(RUNNING, WAITING, CAPACITY, BLOCKS, FREE_BLOCKS, P99_STEP, DROPPED, BATCH, TOKENS, DEAD),
    *(STEPS, PROMPT, CACHED, PREEMPTIONS, GIVEN_UP, ENDED),
)
OF_TOTALS = {
    "steps": STEPS,
    "prompt_tokens": PROMPT,
    "cached_tokens": CACHED,
    "preemptions": PREEMPTIONS,
    "given_up": GIVEN_UP,
}


class ReplicaMetrics:
    """Counts from the replica's own thread; `follow` says where a scrape finds the load."""

    def __init__(self) -> None:
        self.registry = registry = new_registry()
        self._batch, self._tokens, self._dead = BATCH.on(registry), TOKENS.on(registry), DEAD.on(registry)
        self._of_totals = {name: metric.on(registry) for name, metric in OF_TOTALS.items()}
        self._ended = ENDED.on(registry)
        self._dead.labels("replica")
        self._totals, self._requests = Totals(), Requests()

    def follow(self, replica: Replica, blocks: int) -> None:
        shown = (
            (RUNNING, lambda: replica.load.running),
            (WAITING, lambda: replica.load.waiting),
            (CAPACITY, lambda: replica.capacity),
            (BLOCKS, lambda: blocks),
            (FREE_BLOCKS, lambda: replica.load.free_blocks),
            (P99_STEP, lambda: replica.load.p99_step_ms / 1000),
            (DROPPED, lambda: len(replica.load.dropped)),
        )
        for metric, value in shown:
            metric.on(self.registry).set_function(value)

    def stepped(self, totals: Totals, requests: Requests, running: int) -> None:
        """A pass of the replica has ended; it may have computed a step or none."""
        if totals is not self._totals:
            self._batch.observe(running)
            for name, counter in self._of_totals.items():
                counter.inc(getattr(totals, name) - getattr(self._totals, name))
            self._totals = totals
        if requests != self._requests:
            before = asdict(self._requests)
            for end, count in asdict(requests).items():
                self._ended.labels(end).inc(count - before[end])
            self._requests = requests

    def wrote(self, output: Output) -> None:
        """This is about to be sent."""
        if isinstance(output.event, Tokens):
            self._tokens.inc(len(output.event.texts))
        elif isinstance(output.event, DeadLettered):
            self._dead.labels("replica").inc()
