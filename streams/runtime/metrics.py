"""What Prometheus reads of a stage: measured by its shell from records, outputs and a snapshot, the stage stays pure.

All stages of a process share one registry, each under its name. Times of records are the broker's and are compared
with this machine's clock, so ages are as exact as the two clocks agree.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from schemas.events import DeadLettered, UsageRecorded
from schemas.reply_records import Rejected
from streams.runtime.inbox import Inbox
from streams.stage import Stage
from topics.log import Record
from topics.outputs import Output
from topics.telemetry.metrics import Few, Metric, new_registry

LAG_SHOWN_S = 5.0
REPLY_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)

READ = Metric(Counter, "laneway_stage_records_read_total", "Records read", ("stage", "topic"))
WRITTEN = Metric(Counter, "laneway_stage_records_written_total", "Records written, by their type", ("stage", "record"))
SKIPPED = Metric(Counter, "laneway_stage_records_skipped_total", "Tombstones and records of unknown types", ("stage",))
BAD = Metric(
    Counter, "laneway_stage_bad_records_total", "Records that could not be decoded, or not be decided", ("stage",)
)
DEAD = Metric(Counter, "laneway_dead_letters_total", "Records put aside in the topic dead-letters", ("stage",))
LAG = Metric(
    Gauge,
    "laneway_stage_lag_seconds",
    "Age of the oldest record of a read, the largest in 5 s; 0 when nothing came",
    ("stage", "topic"),
)
COMMIT_AGE = Metric(Gauge, "laneway_stage_commit_age_seconds", "Since all that was read had been committed", ("stage",))
STEP_AGE = Metric(Gauge, "laneway_stage_step_age_seconds", "Since its last step began", ("stage",))
PARTITIONS = Metric(Gauge, "laneway_stage_partitions", "Partitions that it was given; 0: another has them", ("stage",))
HELD = Metric(Gauge, "laneway_stage_held", "1 while what it has read cannot be saved, else 0", ("stage",))
QUEUED = Metric(Gauge, "laneway_queue_requests", "Requests in the router's backlog", ("pool", "tier"))
QUEUE_AGE = Metric(Gauge, "laneway_queue_age_seconds", "Age of the oldest of them", ("pool", "tier"))
REPLICAS = Metric(Gauge, "laneway_replicas", "Living replicas of the router's pool, by state", ("pool", "state"))
REFUSED = Metric(Counter, "laneway_messages_refused_total", "Messages that intake has refused", ("reason",))
SETTLED = Metric(Counter, "laneway_replies_settled_total", "Replies that have ended, by their end", ("state", "reason"))
TOKENS = Metric(
    Counter, "laneway_settled_tokens_total", "Tokens of ended replies: prompt, cached of these, completion", ("kind",)
)
REPLY_SECONDS = Metric(
    Histogram, "laneway_reply_seconds", "From Accepted to the end, in log time", ("tier",), REPLY_BUCKETS
)
MIXED = Metric(
    Counter, "laneway_replies_mixed_total", "Replies that a replica of another fingerprint has continued, not exactly"
)
METRICS = (
    *(READ, WRITTEN, SKIPPED, BAD, DEAD, LAG, COMMIT_AGE, STEP_AGE, PARTITIONS, HELD),
    *(QUEUED, QUEUE_AGE, REPLICAS, REFUSED, SETTLED, MIXED, TOKENS, REPLY_SECONDS),
)
REPLICA_STATES = ("ready", "draining")


class StageMeters:
    """The metrics of a process that runs stages, made once."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or new_registry()
        self.read, self.written, self.skipped = (metric.on(self.registry) for metric in (READ, WRITTEN, SKIPPED))
        self.bad, self.dead, self.refused = (metric.on(self.registry) for metric in (BAD, DEAD, REFUSED))
        self.lag, self.commit_age, self.step_age = (metric.on(self.registry) for metric in (LAG, COMMIT_AGE, STEP_AGE))
        self.partitions, self.replicas = PARTITIONS.on(self.registry), REPLICAS.on(self.registry)
        self.on_hold = HELD.on(self.registry)
        self.queued, self.queue_age = QUEUED.on(self.registry), QUEUE_AGE.on(self.registry)
        self.settled, self.tokens = SETTLED.on(self.registry), TOKENS.on(self.registry)
        self.mixed = MIXED.on(self.registry)
        self.reply_seconds = REPLY_SECONDS.on(self.registry)


@dataclass(slots=True)
class Lag:
    """The largest age of a few seconds: a scrape that looks rarely does not miss a peak."""

    age_s: float = 0.0
    at: float = 0.0

    def saw(self, age_s: float, now: float) -> float:
        if age_s >= self.age_s or now - self.at > LAG_SHOWN_S:
            self.age_s, self.at = age_s, now
        return self.age_s


@dataclass
class StageMetrics:
    """One stage's. `wall` gives seconds since 1970, `clock` seconds that only grow."""

    stage: str
    meters: StageMeters
    wall: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    partitions: int | None = None
    why_held: str = ""
    _few: Few = field(default_factory=Few)
    _lags: dict[str, Lag] = field(default_factory=dict)
    _told: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self._committed_at = self._stepped_at = self.clock()
        self.meters.commit_age.labels(self.stage).set_function(lambda: self.clock() - self._committed_at)
        self.meters.step_age.labels(self.stage).set_function(lambda: self.clock() - self._stepped_at)
        for meter in (self.meters.dead, self.meters.bad, self.meters.skipped, self.meters.on_hold):
            meter.labels(self.stage)

    def took(self, records: Sequence[Record], inputs: Sequence[str]) -> None:
        """A step has read these."""
        self._stepped_at, now_ms = self.clock(), self.wall() * 1000
        for topic, count in collections.Counter(record.place.topic for record in records).items():
            self.meters.read.labels(self.stage, topic).inc(count)
        for topic in inputs:
            oldest_ms = min((one.timestamp_ms for one in records if one.place.topic == topic), default=now_ms)
            shown = self._lags.setdefault(topic, Lag()).saw(max(0.0, now_ms - oldest_ms) / 1000, self._stepped_at)
            self.meters.lag.labels(self.stage, topic).set(shown)

    def looked(self, stage: Stage, inbox: Inbox, partitions: int) -> None:
        """At every commit: all that was begun before is committed, and this is what the stage holds."""
        self._committed_at, self.partitions = self.clock(), partitions
        self.meters.partitions.labels(self.stage).set(partitions)
        skipped, bad = self._told
        self.meters.skipped.labels(self.stage).inc(inbox.skipped - skipped)
        self.meters.bad.labels(self.stage).inc(inbox.dead - bad)
        self._told = inbox.skipped, inbox.dead
        snapshot = stage.snapshot()
        for tier, queue in snapshot.queues.items():
            age_s = self.wall() - queue.oldest_ms / 1000 if queue.oldest_ms else 0.0
            self.meters.queued.labels(snapshot.pool, tier).set(queue.requests)
            self.meters.queue_age.labels(snapshot.pool, tier).set(max(0.0, age_s))
        if snapshot.replicas is not None:
            for state in REPLICA_STATES:
                self.meters.replicas.labels(snapshot.pool, state).set(snapshot.replicas.get(state, 0))

    def held(self, why: str) -> None:
        """Whether what was read waits to be saved, and why."""
        if why != self.why_held:
            self.why_held = why
            self.meters.on_hold.labels(self.stage).set(bool(why))

    def wrote(self, output: Output) -> None:
        """This is about to be sent."""
        event = output.event
        self.meters.written.labels(self.stage, type(event).__name__ if event is not None else "tombstone").inc()
        if isinstance(event, DeadLettered):
            self.meters.dead.labels(self.stage).inc()
        elif isinstance(event, Rejected):
            self.meters.refused.labels(self._few(event.reason)).inc()
        elif isinstance(event, UsageRecorded):
            self._settled(event)

    def _settled(self, usage: UsageRecorded) -> None:
        self.meters.settled.labels(usage.state, self._few(usage.reason or "")).inc()
        self.meters.mixed.inc(len(usage.fingerprints) > 1)
        self.meters.reply_seconds.labels(self._few(usage.tier)).observe((usage.ended_ms - usage.accepted_ms) / 1000)
        for kind in ("prompt", "cached", "completion"):
            self.meters.tokens.labels(kind).inc(getattr(usage, f"{kind}_tokens"))
