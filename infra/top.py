"""What `laneway top` shows: a fold of the newest part of the log, joined with what the metrics ports say.

In: records as they come, and the text of each process's /metrics. Out: a Picture, plain values. Its clock is the log's:
the newest timestamp that was read.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from schemas.codec import Codec, CodecError
from schemas.events import EdgeBeat, ReplicaBeat
from schemas.ids import Incarnation, ReplyId
from schemas.reply import MOVES, Reply, State
from schemas.reply_records import Accepted, Tokens
from topics.catalog import EDGES, REPLICAS, REPLIES, SECOND, TIERS
from topics.log import Log, Place, Reader, Record
from topics.outputs import reply_of_key

SHOWN_REPLIES = 12
SILENT_MS = 10 * SECOND
RATE_MS = 5 * SECOND
PAST_MS = 120 * SECOND
MOST_FOLDED = 2_000
BATCH = 2_000

Samples = Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]


@dataclass(frozen=True)
class Lane:
    """A tier's queue; None where the router does not say."""

    tier: str
    queued: float | None
    age_s: float | None


@dataclass(frozen=True)
class ReplicaRow:
    beat: ReplicaBeat
    silent_s: float
    tokens_per_s: float


@dataclass(frozen=True)
class StageRow:
    process: str
    stage: str
    partitions: float
    lag_s: float
    commit_age_s: float


@dataclass(frozen=True)
class EdgeRow:
    incarnation: str
    streams: int
    silent_s: float


@dataclass(frozen=True)
class ReplyRow:
    id: ReplyId
    state: State
    tokens: int
    age_s: float
    conversation: str


@dataclass(frozen=True)
class Picture:
    lanes: tuple[Lane, ...]
    replicas: tuple[ReplicaRow, ...]
    stages: tuple[StageRow, ...]
    edges: tuple[EdgeRow, ...]
    replies: tuple[ReplyRow, ...]
    missing: tuple[str, ...] = ()


class Folded:
    """The log as far as it was read."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.now_ms = 0
        self._replicas: dict[tuple[str, int], tuple[ReplicaBeat, int]] = {}
        self._edges: dict[str, tuple[EdgeBeat, int]] = {}
        self._replies: dict[ReplyId, tuple[Reply, int]] = {}
        self._written: defaultdict[Incarnation, deque[tuple[int, int]]] = defaultdict(deque)

    def take(self, record: Record) -> None:
        """Folds a record in; one that cannot be decoded is another's to report."""
        self.now_ms = max(self.now_ms, record.timestamp_ms)
        try:
            event = self._codec.decode(record.value)
        except CodecError:
            return
        match event:
            case ReplicaBeat():
                self._replicas[event.pool, event.slot] = event, record.timestamp_ms
            case EdgeBeat():
                self._edges[event.incarnation] = event, record.timestamp_ms
            case _ if record.place.topic == REPLIES and type(event) in MOVES:
                self._reply(record, event)

    def _reply(self, record: Record, event: object) -> None:
        reply = reply_of_key(record.key)
        if reply is None:
            return
        if isinstance(event, Tokens):
            self._written[event.incarnation].append((record.timestamp_ms, len(event.texts)))
        if isinstance(event, Accepted) and reply not in self._replies:
            self._replies[reply] = Reply(reply), record.timestamp_ms
            if len(self._replies) > MOST_FOLDED:
                del self._replies[next(iter(self._replies))]
        if found := self._replies.get(reply):
            found[0].apply(record.offset, event)  # type: ignore[arg-type]

    def replicas(self) -> tuple[ReplicaRow, ...]:
        rows = []
        for _, (beat, at_ms) in sorted(self._replicas.items()):
            if self.now_ms - at_ms < SILENT_MS:
                rows.append(ReplicaRow(beat, (self.now_ms - at_ms) / 1000, self._rate(beat.incarnation)))
        return tuple(rows)

    def edges(self) -> tuple[EdgeRow, ...]:
        seen = [(beat, self.now_ms - at_ms) for beat, at_ms in self._edges.values()]
        alive = [EdgeRow(beat.incarnation, beat.streams, age / 1000) for beat, age in seen if age < SILENT_MS]
        return tuple(sorted(alive, key=lambda edge: edge.incarnation))

    def replies(self) -> tuple[ReplyRow, ...]:
        """The newest, the newest first."""
        newest = sorted(self._replies.values(), key=lambda found: -found[1])[:SHOWN_REPLIES]
        return tuple(
            ReplyRow(
                reply.id,
                reply.state,
                reply.last,
                (self.now_ms - at_ms) / 1000,
                reply.accepted.conversation if reply.accepted else "",
            )
            for reply, at_ms in newest
        )

    def _rate(self, incarnation: Incarnation) -> float:
        written = self._written[incarnation]
        while written and self.now_ms - written[0][0] > RATE_MS:
            written.popleft()
        return sum(count for _, count in written) * 1000 / RATE_MS


class Watched:
    """A reader of the newest part of the topics that `top` shows."""

    def __init__(self, log: Log, codec: Codec) -> None:
        self._reader: Reader = log.reader()
        self.folded = Folded(codec)
        replies = [Place(REPLIES, partition) for partition in range(log.partitions(REPLIES))]
        self._places = [Place(REPLICAS, 0), Place(EDGES, 0), *replies]
        self._ends = {place: self._reader.end(place) for place in self._places}

    def catch_up(self, since_ms: int) -> None:
        """Reads what was written between `since_ms` and the opening."""
        for place, end in self._ends.items():
            start = self._reader.offset_at(place, since_ms)
            self._reader.add(place, end if start is None else start)
        while any(self._reader.position(place) < end for place, end in self._ends.items()):
            self.read(0.2)

    def read(self, timeout_s: float) -> None:
        for record in self._reader.poll(BATCH, timeout_s):
            self.folded.take(record)

    def close(self) -> None:
        self._reader.close()


def parse(text: str) -> Samples:
    """Prometheus' text as values by name and labels."""
    found: defaultdict[str, dict[tuple[tuple[str, str], ...], float]] = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name][tuple(sorted(sample.labels.items()))] = sample.value
    return found


def lanes(of: Iterable[Samples]) -> tuple[Lane, ...]:
    """Each tier's queue, of all pools, as the routers that have it say; a standby says nothing."""
    queued: dict[str, float] = {}
    ages: dict[str, float] = {}
    for samples in of:
        for labels, value in samples.get("laneway_queue_requests", {}).items():
            queued[dict(labels)["tier"]] = queued.get(dict(labels)["tier"], 0) + value
        for labels, value in samples.get("laneway_queue_age_seconds", {}).items():
            ages[dict(labels)["tier"]] = max(ages.get(dict(labels)["tier"], 0), value)
    return tuple(Lane(tier, queued.get(tier), ages.get(tier)) for tier in TIERS)


def stages(of: Mapping[str, Samples]) -> tuple[StageRow, ...]:
    rows = []
    for process, samples in of.items():
        lags: defaultdict[str, float] = defaultdict(float)
        for labels, value in samples.get("laneway_stage_lag_seconds", {}).items():
            lags[dict(labels)["stage"]] = max(lags[dict(labels)["stage"]], value)
        for labels, partitions in sorted(samples.get("laneway_stage_partitions", {}).items()):
            stage = dict(labels)["stage"]
            age_s = samples.get("laneway_stage_commit_age_seconds", {}).get(labels, 0.0)
            rows.append(StageRow(process, stage, partitions, lags[stage], age_s))
    return tuple(rows)
