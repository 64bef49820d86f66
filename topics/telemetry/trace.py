"""One trace of a message through the stages: what a stage does for a reply is a span, its parent came with the record.

A record carries the W3C `traceparent` of the span that wrote it. Each span begins when the record that caused it was
appended, so the time in a queue is seen. Only an edge begins a trace: a record that brings none, or is read again,
never makes a second root. Tokens carry no headers. OpenTelemetry is loaded when spans are asked for, not before.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from schemas import events as e
from schemas import reply_records as r
from schemas.settings import SettingError
from topics.catalog import REPLIES
from topics.log import Headers, Record
from topics.outputs import Output, reply_of_key

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

MOST_REPLIES = 10_000
CARRIED = ("traceparent", "tracestate")

# What a written record does to the span of its reply: it begins and ends one, or ends one that lasts.
AT_ONCE = (
    *(r.Accepted, r.Rejected, r.Redirected, r.AttemptOpened, r.Shed),
    *(e.MessagePosted, e.GenerateRequested, e.GenerateAssigned, e.ReplySettled, e.TurnSaved, e.UsageRecorded),
)
LASTING = (r.Started, r.Tokens, r.Preempted)
ENDING = (r.Finished, r.Failed)
FIRST_ONLY = (r.Started, r.Tokens)


def tracer_of(process: str, to: str) -> Tracer | None:
    """None when no traces are asked for. Raises SettingError when what they need is not installed."""
    if not to:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
    except ModuleNotFoundError as error:
        raise SettingError(
            f"LANEWAY_TRACE={to!r}: expected {error.name} to be installed: pip install laneway[trace]"
        ) from None
    named = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": f"laneway-{process}"}
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter() if to == "console" else OTLPSpanExporter()))
    return provider.get_tracer("laneway")


@dataclass(slots=True)
class Part:
    """What one stage does for one reply: the span that caused it, when, and its own span once that has begun."""

    cause: Context
    since_ns: int
    span: Span | None = None
    noted: set[str] = field(default_factory=set)


class Spans:
    """The spans of one stage; used by one thread. The replies of the newest MOST_REPLIES causes are remembered."""

    def __init__(self, stage: str, tracer: Tracer) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._stage, self._tracer, self._api = stage, tracer, trace
        self._propagator = TraceContextTextMapPropagator()
        self._parts: OrderedDict[str, Part] = OrderedDict()

    def root(self, reply: str, headers: Mapping[str, str], since_ns: int) -> Span:
        """The span of a client's request, a part of the client's own trace if it brings one. The caller ends it."""
        cause = self._propagator.extract({name: headers[name] for name in CARRIED if name in headers})
        part = self._remember(reply, Part(cause, since_ns))
        return self._begin(part, reply, self._api.SpanKind.SERVER)

    def read(self, record: Record, event: object) -> None:
        """A record has come: what it leads to belongs to the span that wrote it."""
        reply = _subject(record.place.topic, reply_of_key(record.key), event)
        if reply is None:
            return
        if isinstance(event, e.AbortReply):
            self._end(self._parts.pop(reply, None), "aborted")
        elif carried := {name: value.decode("ascii", "replace") for name, value in record.headers if name in CARRIED}:
            self._end(self._parts.pop(reply, None), "lost")
            self._remember(reply, Part(self._propagator.extract(carried), record.timestamp_ms * 1_000_000))

    def headers(self, output: Output) -> Headers:
        """What this record is to carry; begins, notes and ends spans."""
        event, reply = output.event, _subject(output.place.topic, output.key, output.event)
        part = self._parts.get(reply) if reply is not None else None
        if part is None or reply is None or not isinstance(event, AT_ONCE + LASTING + ENDING):
            return ()
        fresh = part.span is None
        span = part.span or self._begin(part, reply, self._api.SpanKind.CONSUMER)
        kind = type(event).__name__
        if span.is_recording() and (kind not in part.noted or not isinstance(event, FIRST_ONLY)):
            part.noted.add(kind)
            span.add_event(kind)
        if isinstance(event, r.Failed | r.Rejected | r.Shed):
            span.set_status(self._api.StatusCode.ERROR, event.reason.partition(":")[0])
        if isinstance(event, ENDING) or (fresh and isinstance(event, AT_ONCE)):
            span.end()
        return () if isinstance(event, LASTING) else self._carrying(span)

    def _begin(self, part: Part, reply: str, kind: object) -> Span:
        part.span = self._tracer.start_span(
            self._stage,
            part.cause,
            kind,  # type: ignore[arg-type]
            attributes={"laneway.reply": reply},
            start_time=part.since_ns,
        )
        return part.span

    def _carrying(self, span: Span) -> Headers:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._api.set_span_in_context(span))
        return tuple((name, value.encode()) for name, value in carrier.items())

    def _remember(self, reply: str, part: Part) -> Part:
        self._parts[reply] = part
        while len(self._parts) > MOST_REPLIES:
            self._end(self._parts.popitem(last=False)[1], "forgotten")
        return part

    def _end(self, part: Part | None, how: str) -> None:
        """Ends a span that lasts and will not see its end."""
        if part is not None and part.span is not None and part.span.is_recording():
            part.span.add_event(how)
            part.span.end()


def _subject(topic: str, key: str | None, event: object) -> str | None:
    """The reply that a record is about."""
    if topic == REPLIES:
        return key
    if isinstance(event, e.GenerateAssigned):
        return event.request.reply
    return getattr(event, "reply", None)
