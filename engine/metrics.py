"""What Prometheus reads of a replica: its load as it notes it, and what it writes, counted as it leaves."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter, Gauge, Histogram

from engine.replica import Load
from schemas.events import DeadLettered, GenerateAssigned
from schemas.ids import ReplyId
from schemas.reply_records import Failed, Finished, Preempted, Started, Tokens
from topics.outputs import Output
from topics.telemetry.metrics import Few, Metric, new_registry

BATCH_BUCKETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
MOST_PROMPTS = 10_000

RUNNING = Metric(Gauge, "laneway_replica_running_replies", "Replies that it computes")
WAITING = Metric(Gauge, "laneway_replica_waiting_replies", "Replies that wait for room, preempted ones among them")
CAPACITY = Metric(Gauge, "laneway_replica_capacity_replies", "Replies that it may compute at once")
BLOCKS = Metric(Gauge, "laneway_replica_blocks", "Blocks of 16 tokens for keys and values")
FREE_BLOCKS = Metric(Gauge, "laneway_replica_free_blocks", "Blocks to give out, shareable prefixes among them")
P99_STEP = Metric(Gauge, "laneway_replica_step_p99_seconds", "99th percentile of the last 200 steps")
STEPS = Metric(Counter, "laneway_replica_steps_total", "Steps that the engine has computed")
BATCH = Metric(Histogram, "laneway_replica_batch_replies", "Replies that run, seen after each step", (), BATCH_BUCKETS)
TOKENS = Metric(Counter, "laneway_replica_tokens_total", "Tokens that it has written")
PROMPT = Metric(Counter, "laneway_replica_prompt_tokens_total", "Tokens of prompts whose replies it has started")
CACHED = Metric(Counter, "laneway_replica_cached_tokens_total", "Tokens of these that the prefix cache had")
PREEMPTIONS = Metric(Counter, "laneway_replica_preemptions_total", "Replies put back because blocks ran out")
ENDED = Metric(
    Counter, "laneway_replica_replies_total", "Replies that it has ended: finish_reason, or failed", ("how",)
)
DROPPED = Metric(Gauge, "laneway_replica_dropped_replies", "Attempts given up that wait for the supervisor's fence")
DEAD = Metric(Counter, "laneway_dead_letters_total", "Records put aside in the topic dead-letters", ("stage",))
METRICS = (
    *(RUNNING, WAITING, CAPACITY, BLOCKS, FREE_BLOCKS, P99_STEP, STEPS, BATCH, TOKENS),
    *(PROMPT, CACHED, PREEMPTIONS, ENDED, DROPPED, DEAD),
)


class ReplicaMetrics:
    """Counts from the replica's own thread; `follow` says where a scrape finds the load."""

    def __init__(self) -> None:
        self.registry = registry = new_registry()
        self._steps, self._batch, self._tokens = STEPS.on(registry), BATCH.on(registry), TOKENS.on(registry)
        self._prompt, self._cached, self._preempted = PROMPT.on(registry), CACHED.on(registry), PREEMPTIONS.on(registry)
        self._ended, self._dead = ENDED.on(registry), DEAD.on(registry).labels("replica")
        self._few, self._counted = Few(), 0
        self._prompts: dict[ReplyId, int] = {}

    def follow(self, load: Callable[[], Load], capacity: int, blocks: int) -> None:
        shown = (
            (RUNNING, lambda: load().running),
            (WAITING, lambda: load().waiting),
            (CAPACITY, lambda: capacity),
            (BLOCKS, lambda: blocks),
            (FREE_BLOCKS, lambda: load().free_blocks),
            (P99_STEP, lambda: load().p99_step_ms / 1000),
            (DROPPED, lambda: len(load().dropped)),
        )
        for metric, value in shown:
            metric.on(self.registry).set_function(value)

    def stepped(self, load: Load) -> None:
        """A pass of the replica has ended; it may have computed a step or none."""
        if load.step > self._counted:
            self._steps.inc(load.step - self._counted)
            self._batch.observe(load.running)
            self._counted = load.step

    def read(self, event: object) -> None:
        """It has been told something: of a request, how long its prompt is."""
        if isinstance(event, GenerateAssigned):
            self._prompts[event.request.reply] = len(event.request.prompt) // 4
            if len(self._prompts) > MOST_PROMPTS:
                del self._prompts[next(iter(self._prompts))]

    def wrote(self, output: Output) -> None:
        match output.event:
            case Tokens(texts=texts):
                self._tokens.inc(len(texts))
            case Started(cached_tokens=cached):
                self._prompt.inc(self._prompts.get(ReplyId(output.key), 0))
                self._cached.inc(cached)
            case Finished(reason=reason):
                self._prompts.pop(ReplyId(output.key), None)
                self._ended.labels(self._few(reason)).inc()
            case Failed():
                self._ended.labels("failed").inc()
            case Preempted():
                self._preempted.inc()
            case DeadLettered():
                self._dead.inc()
