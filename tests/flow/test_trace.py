"""One message's way through the pipeline is one trace: the edge's span is its root, each stage's a child in turn."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

from engine.beats import Beats
from engine.engine import Engine
from engine.lanes import Lanes
from engine.replica import Identity, Outbox, Replica
from engine.scheduler import Limits
from engine.scripted import ScriptedRunner
from engine.succession import Watch as Succession
from schemas.events import MessagePosted, ReplySettled
from schemas.ids import Incarnation, ReplyId
from schemas.tokenizer import ChatTokenizer
from streams.runtime.metrics import StageMeters, StageMetrics
from streams.runtime.runner import Runner, Shell
from streams.runtime.watch import Watch
from streams.stage import Stage
from tests.flow.test_pipeline import TEXT, Pipeline
from tests.tiny_llama import write_tokenizer
from tests.unit.streams.cells import CODEC, AtOnce
from tests.unit.streams.staged import posted
from topics.catalog import REPLIES
from topics.log import Place
from topics.memory import MemoryProducer
from topics.outputs import Output
from topics.schemas import Decoder
from topics.store.sqlite import SqliteStore
from topics.telemetry.trace import Spans
from topics.telemetry.watched import WatchedEncoder

CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class TracedPipeline(Pipeline):
    """Every process has spans of its own, as in production; all end up in one exporter.

    `crash_after` is an event whose writer dies in its next call of the log, once.
    """

    crash_after: type | None = None

    def __init__(self, tokenizer: ChatTokenizer, store: SqliteStore, tracer: Tracer) -> None:
        self.tracer = tracer
        super().__init__(tokenizer, store)
        self.edge = Spans("edge", tracer)

    def watched(self, spans: Spans) -> WatchedEncoder:
        return WatchedEncoder(CODEC, self.sizes, next(self._names), self._wrote, spans)

    def _wrote(self, output: Output) -> None:
        if self.crash_after is not None and isinstance(output.event, self.crash_after):
            self.crash_after, self.log.crash_at = None, len(self.log.calls) + 1

    def runner(self, stage: Stage, *_: object, beside: Executor | None = None, **shell: object) -> Runner:
        name = stage.name.partition(".")[0]
        watch = Watch(StageMetrics(name, StageMeters()), Spans(name, self.tracer))
        encoder = self.watched(watch.spans) if watch.spans else self.encoder()
        decoder = Decoder(self.log, self._codec)
        return Runner(stage, Shell(self.log, decoder, encoder, beside or AtOnce(), watch=watch, **shell))  # type: ignore[arg-type]

    def start(self, slot: int, incarnation: str, capacity: int = 2) -> None:
        spans = Spans("replica", self.tracer)
        identity = Identity("main", slot, Incarnation(incarnation))
        lanes = Lanes(self.log, Decoder(self.log, CODEC), "main", slot, spans.read)
        engine = Engine(ScriptedRunner(self.tokenizer), Limits(max_running=capacity))
        outbox = Outbox(self.log.producer(), self.watched(spans), self.routes)
        replica = Replica(identity, engine, self.tokenizer, lanes, outbox)
        replica.note()
        beats = Outbox(self.log.producer(), self.encoder(), self.routes)
        watch = Succession(self.log, Decoder(self.log, CODEC), identity)
        self.replicas[slot] = replica, Beats(replica, watch, beats, print)

    def ask(self, message: MessagePosted, headers: dict[str, str]) -> ReplyId:
        """What the edge does for a POST."""
        span = self.edge.root(message.reply, headers, self.now_ms * 1_000_000)
        MemoryProducer(self.log).send(self.watched(self.edge).append(self.routes.message(message.user, message)))
        span.end(self.now_ms * 1_000_000)
        return message.reply


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def pipeline(exporter: InMemorySpanExporter, tmp_path: Path) -> Iterator[TracedPipeline]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    store = SqliteStore(tmp_path / "store.sqlite")
    tokenizer = ChatTokenizer.load(write_tokenizer(tmp_path))
    yield TracedPipeline(tokenizer, store, provider.get_tracer("tests"))
    store.close()
    provider.shutdown()


def by_name(exporter: InMemorySpanExporter) -> dict[str, list[ReadableSpan]]:
    found: dict[str, list[ReadableSpan]] = {}
    for span in exporter.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


def links(exporter: InMemorySpanExporter, *names: str) -> list[str | None]:
    """The name of each span's parent, of the first span of each name."""
    spans = by_name(exporter)
    named = {span.context.span_id: span.name for found in spans.values() for span in found if span.context}
    parents = [spans[name][0].parent for name in names]
    return [named.get(parent.span_id, "client") if parent else None for parent in parents]


CHAIN = ("edge", "intake", "router", "replica", "settlement")


def test_a_message_is_one_trace_from_the_edge_to_its_settlement(
    pipeline: TracedPipeline, exporter: InMemorySpanExporter
) -> None:
    pipeline.start(0, "one")
    reply = pipeline.ask(posted(1, TEXT), {})
    pipeline.run(reply)
    pipeline.settle()
    assert links(exporter, *CHAIN) == [None, "edge", "intake", "router", "replica"]
    spans = exporter.get_finished_spans()
    assert len({span.context.trace_id for span in spans if span.context}) == 1
    assert {dict(span.attributes or {})["laneway.reply"] for span in spans} == {reply}
    starts = [by_name(exporter)[name][0].start_time or 0 for name in CHAIN]
    assert starts == sorted(starts)


def test_the_replicas_span_lasts_from_its_lane_to_the_end(
    pipeline: TracedPipeline, exporter: InMemorySpanExporter
) -> None:
    pipeline.start(0, "one")
    pipeline.run(pipeline.ask(posted(1, TEXT), {}))
    [span] = by_name(exporter)["replica"]
    assert [event.name for event in span.events] == ["Started", "Tokens", "Finished"]


def test_a_clients_own_trace_goes_on(pipeline: TracedPipeline, exporter: InMemorySpanExporter) -> None:
    pipeline.start(0, "one")
    pipeline.run(pipeline.ask(posted(1, TEXT), {"traceparent": CLIENT}))
    pipeline.settle()
    assert links(exporter, *CHAIN)[:2] == ["client", "edge"]
    assert {f"{span.context.trace_id:032x}" for span in exporter.get_finished_spans() if span.context} == {CLIENT[3:35]}


def test_what_is_read_again_or_brings_no_trace_makes_no_second_root(
    pipeline: TracedPipeline, exporter: InMemorySpanExporter
) -> None:
    pipeline.crash_after = ReplySettled
    reply = pipeline.ask(posted(1, TEXT), {})
    pipeline.start(0, "one")
    pipeline.run(reply)
    pipeline.settle()
    pipeline.run(pipeline.post(posted(2, "no trace", user="bob")))
    pipeline.settle()
    spans = exporter.get_finished_spans()
    assert len(by_name(exporter)["settlement"]) == 2
    assert [span.name for span in spans if span.parent is None] == ["edge"]
    assert {dict(span.attributes or {})["laneway.reply"] for span in spans} == {reply}


def test_a_reply_that_goes_on_elsewhere_stays_in_its_trace(
    pipeline: TracedPipeline, exporter: InMemorySpanExporter
) -> None:
    pipeline.start(0, "one")
    reply = pipeline.ask(posted(1, TEXT), {})
    pipeline.run(reply, tokens=3)
    pipeline.start(0, "two")
    pipeline.run(reply)
    pipeline.settle()
    spans = exporter.get_finished_spans()
    assert len({span.context.trace_id for span in spans if span.context}) == 1
    assert links(exporter, "supervisor") == ["intake"]


def test_tokens_carry_no_headers(pipeline: TracedPipeline) -> None:
    pipeline.start(0, "one")
    pipeline.run(pipeline.ask(posted(1, TEXT), {}))
    carrying = [type(CODEC.decode(record.value)).__name__ for record in pipeline.records(REPLIES) if record.headers]
    assert carrying == ["Accepted", "Finished"]
    assert len(pipeline.records(REPLIES)) > len(TEXT)
    assert Place(REPLIES, 0) == pipeline.records(REPLIES)[0].place
