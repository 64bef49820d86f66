"""The Avro schema of an event class, from its annotations; the committed versions of each under `schemas/avro/`.

`<Name>/<version>.avsc` are golden: a change of a class adds a version, and every two versions of a class read each
other (FULL_TRANSITIVE), so a reader never has to be upgraded before a writer.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from fastavro.schema import fingerprint, to_parsing_canonical_form

from schemas import events, kept_records, quota_records, reply_records

Schema: TypeAlias = dict[str, Any]

NAMESPACE = "laneway"
FOLDER = Path(__file__).parent / "avro"
EVENTS: tuple[type, ...] = (
    events.MessagePosted,
    events.ConversationRenamed,
    events.ConversationDeleted,
    events.ReplySettled,
    events.HistoryLoaded,
    events.Tick,
    quota_records.PlansLoaded,
    quota_records.LimitSet,
    quota_records.UsageAsked,
    events.GenerateRequested,
    events.GenerateAssigned,
    events.AbortReply,
    events.DrainRequested,
    reply_records.Accepted,
    reply_records.Rejected,
    reply_records.Redirected,
    reply_records.UsageTold,
    reply_records.Dispatched,
    reply_records.Started,
    reply_records.Tokens,
    reply_records.Preempted,
    reply_records.AttemptOpened,
    reply_records.Cleared,
    reply_records.Flagged,
    reply_records.Finished,
    reply_records.Stopped,
    reply_records.Shed,
    reply_records.Failed,
    reply_records.ListenerAttached,
    reply_records.ListenerDetached,
    events.ReplicaBeat,
    events.SupervisorBeat,
    events.EdgeBeat,
    events.TurnSaved,
    events.UsageRecorded,
    kept_records.ConversationKept,
    kept_records.WritersKept,
    kept_records.ReplyKept,
    quota_records.QuotaKept,
    events.SchemaPublished,
    events.DeadLettered,
)

_PRIMITIVES = {str: "string", int: "long", float: "double", bool: "boolean", bytes: "bytes"}


def schema_of(cls: type) -> Schema:
    """The Avro record schema of an event class. Raises TypeError for an annotation that Avro has no type for."""
    return typing.cast(Schema, _avro_type(cls, set()))


def canonical(schema: Schema) -> str:
    """Avro's parsing canonical form, the text that is fingerprinted."""
    return str(to_parsing_canonical_form(schema))


def fingerprint_of(schema: Schema) -> bytes:
    """The 8-byte CRC-64-AVRO fingerprint, little-endian as single-object encoding has it."""
    return _fingerprint(canonical(schema))


@functools.lru_cache(1_000)  # a millisecond each, and a process asks for each of its own several times
def _fingerprint(text: str) -> bytes:
    return bytes.fromhex(fingerprint(text, "CRC-64-AVRO"))


def golden(cls: type) -> list[Schema]:
    """The committed schemas of `cls`, oldest first."""
    files = sorted((FOLDER / cls.__name__).glob("*.avsc"), key=lambda path: int(path.stem))
    return [json.loads(path.read_text()) for path in files]


def write_golden() -> Iterator[Path]:
    """Adds a version for each class whose schema is not the newest committed one; yields what it wrote."""
    for cls in EVENTS:
        versions = golden(cls)
        if not versions or versions[-1] != schema_of(cls):
            path = FOLDER / cls.__name__ / f"{len(versions) + 1}.avsc"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(schema_of(cls), indent=2) + "\n")
            yield path


def _avro_type(annotation: Any, named: set[str]) -> Any:
    annotation = getattr(annotation, "__supertype__", annotation)
    if annotation in _PRIMITIVES:
        return _PRIMITIVES[annotation]
    if dataclasses.is_dataclass(annotation):
        return _record(typing.cast(type, annotation), named)
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is tuple and arguments[1:] == (...,):
        return {"type": "array", "items": _avro_type(arguments[0], named)}
    if typing.get_origin(annotation) in (types.UnionType, typing.Union) and arguments[1:] == (types.NoneType,):
        return ["null", _avro_type(arguments[0], named)]
    raise TypeError(f"{annotation!r} has no Avro type here: use str, int, float, bool, bytes, tuple, X | None")


def _record(cls: type, named: set[str]) -> Any:
    if cls.__name__ in named:
        return cls.__name__
    named.add(cls.__name__)
    hints = typing.get_type_hints(cls)
    fields: list[dict[str, Any]] = []
    for field in dataclasses.fields(cls):
        entry = {"name": field.name, "type": _avro_type(hints[field.name], named)}
        if field.default is not dataclasses.MISSING:
            entry["default"] = [] if field.default == () else field.default
        fields.append(entry)
    return {"type": "record", "name": cls.__name__, "namespace": NAMESPACE, "fields": fields}


if __name__ == "__main__":
    for written in write_golden():
        print(f"wrote {written.relative_to(FOLDER)}")
