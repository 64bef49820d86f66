"""Events to bytes and back.

Internal topics carry Avro single-object encoding (C3 01, 8-byte fingerprint, body); topics that other people's tools
read carry the Confluent wire format (00, 4-byte schema id, body). `decode` tells them apart by their first byte.
Whatever the bytes are, `decode` returns an event or raises one of the three errors below, and nothing else.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import struct
import typing
from collections.abc import Callable
from io import BytesIO
from typing import Any, TypeAlias

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException
from fastavro.schema import UnknownType as UnknownAvroType

from schemas.avro_schema import EVENTS, NAMESPACE, Schema, fingerprint_of, golden, schema_of
from schemas.quick_tokens import read_tokens
from schemas.reply_records import Tokens


class CodecError(ValueError):
    """A record's bytes are no event. A retry does not help, but for UnknownSchema once the schema is learnt."""


class BadRecord(CodecError):
    """The bytes are not the encoding that they claim to be."""


class UnknownSchema(CodecError):
    """The schema's fingerprint or id is not known here; `key` is what to look up in the topic `schemas`."""

    def __init__(self, key: bytes) -> None:
        super().__init__(f"no schema known for {key.hex()}")
        self.key = key


class UnknownType(CodecError):
    """A well-formed record of a type that this version does not know: to be skipped."""


class BadSchema(CodecError):
    """What was published as a schema is none that a record could be written with."""


_BAD_SCHEMAS = (SchemaParseException, UnknownAvroType, RecursionError)
_BAD_BYTES = (EOFError, IndexError, ValueError, TypeError, KeyError, OverflowError, AttributeError, struct.error)
_NO_EVENT = (*_BAD_BYTES, SchemaResolutionError)

# What a record of one schema is made into: the name of its class, the schemas of writer and reader, its builder, and
# what reads its usual form quicker.
Decoder: TypeAlias = tuple[str, Schema, Schema | None, Callable[[dict[str, Any]], Any], Callable[[bytes], Any] | None]


@dataclasses.dataclass(frozen=True)
class Known:
    """Parsed schemas by fingerprint and by Confluent id, and what each class is written with: both keys, the schema."""

    writers: dict[bytes, Schema] = dataclasses.field(default_factory=dict)
    current: dict[type, tuple[bytes, bytes, Schema]] = dataclasses.field(default_factory=dict)

    def learn(self, schema: Schema) -> tuple[bytes, bytes, Schema]:
        """As `Codec.learn`, with both keys."""
        try:
            parsed = typing.cast(Schema, parse_schema(schema))
            fingerprint = fingerprint_of(schema)
        except (*_BAD_BYTES, *_BAD_SCHEMAS) as error:
            raise BadSchema(f"{str(schema)[:200]} is no Avro schema: {error!r}") from error
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise BadSchema(f"{str(schema)[:200]} is no schema of a record")
        identifier = _shortened(fingerprint)
        known = self.writers.setdefault(fingerprint, parsed)
        self.writers.setdefault(identifier, known)
        return fingerprint, identifier, known


@functools.cache
def _committed() -> Known:
    """What every codec begins with: parsing takes a quarter of a second, and a process has a dozen codecs."""
    known = Known()
    for cls in EVENTS:
        for schema in golden(cls):
            known.learn(schema)
        known.current[cls] = known.learn(schema_of(cls))
    return known


class Codec:
    """All schemas known to a process: the committed ones, and those it learns."""

    def __init__(self) -> None:
        committed = _committed()
        self._known = Known(dict(committed.writers), committed.current)
        self._decoders: dict[bytes, Decoder] = {}
        self._writers, self._current = self._known.writers, self._known.current

    def learn(self, schema: Schema) -> Schema:
        """Makes records written with `schema` readable; returns it parsed. Raises BadSchema unless it is a record's."""
        return self._known.learn(schema)[2]

    def encode(self, event: object) -> bytes:
        """Single-object encoding. Raises TypeError or ValueError if a field does not fit its annotation."""
        fingerprint, _, schema = self._current[type(event)]
        return _write(b"\xc3\x01" + fingerprint, schema, event)

    def encode_confluent(self, event: object) -> bytes:
        """Confluent wire format; the id is the schema's own (see `confluent_id`)."""
        _, identifier, schema = self._current[type(event)]
        return _write(b"\x00" + identifier, schema, event)

    def decode(self, value: bytes | None) -> Any:
        """The event in `value`. Raises BadRecord (also for a tombstone), UnknownSchema or UnknownType."""
        if value is None:
            raise BadRecord("a tombstone, where a record was expected")
        key, body = _split(value)
        name, writer, reader, build, quick = self._decoders.get(key) or self._decoder(key)
        if quick is not None and (usual := quick(body)) is not None:
            return usual
        stream = BytesIO(body)
        try:
            event = build(typing.cast(dict[str, Any], schemaless_reader(stream, writer, reader)))
        except _NO_EVENT as error:
            raise BadRecord(f"{len(body)} bytes are no {name}: {error!r}") from error
        if stream.tell() != len(body):
            raise BadRecord(f"{len(body) - stream.tell()} bytes follow a whole {name}")
        return event

    def _decoder(self, key: bytes) -> Decoder:
        """Looked up once for each schema, since every token comes by. Raises UnknownSchema or UnknownType."""
        writer = self._writers.get(key)
        if writer is None:
            raise UnknownSchema(key)
        cls = _CLASSES.get(str(writer["name"]))
        if cls is None:
            raise UnknownType(f"records of type {writer['name']} are not known to this version")
        _, _, reader = self._current[cls]
        same = reader is writer
        quick = _QUICK.get(cls) if same else None
        found = self._decoders[key] = (cls.__name__, writer, None if same else reader, _BUILDERS[cls], quick)
        return found


def confluent_id(schema: Schema) -> bytes:
    """A schema's id where no registry gives one: the first 31 bits of its fingerprint, 4 bytes big-endian."""
    return _shortened(fingerprint_of(schema))


def _shortened(fingerprint: bytes) -> bytes:
    return (int.from_bytes(fingerprint[:4], "big") & 0x7FFFFFFF).to_bytes(4, "big")


def schemas_by_confluent_id() -> dict[int, str]:
    """Every committed schema as JSON text, for the read-only registry endpoint."""
    return {int.from_bytes(confluent_id(s), "big"): json.dumps(s) for cls in EVENTS for s in golden(cls)}


def _split(value: bytes) -> tuple[bytes, bytes]:
    if value[:2] == b"\xc3\x01" and len(value) >= 10:
        return value[2:10], value[10:]
    if value[:1] == b"\x00" and len(value) >= 5:
        return value[1:5], value[5:]
    raise BadRecord(f"{len(value)} bytes that begin with {value[:4].hex() or 'nothing'} are no encoded event")


def _write(prefix: bytes, schema: Schema, event: object) -> bytes:
    stream = BytesIO()
    stream.write(prefix)
    try:
        schemaless_writer(stream, schema, _READERS[type(event)](event), strict=True)
    except OverflowError as error:
        raise ValueError(f"a number in {type(event).__name__} does not fit in 64 bits: {error}") from error
    return stream.getvalue()


def _taker(annotation: Any) -> Callable[[Any], Any] | None:
    """How a field's value becomes what fastavro writes; None where it is written as it is."""
    if dataclasses.is_dataclass(annotation):
        return _to_dict(typing.cast(type, annotation))
    inner = next((take for take in map(_taker, typing.get_args(annotation)) if take), None)
    if inner is None:
        return None
    if typing.get_origin(annotation) is tuple:
        return lambda values: [inner(value) for value in values]
    return lambda value: None if value is None else inner(value)


def _to_dict(cls: type) -> Callable[[Any], dict[str, Any]]:
    hints = typing.get_type_hints(cls)
    plain = [f.name for f in dataclasses.fields(cls) if _taker(hints[f.name]) is None]
    nested = [(f.name, take) for f in dataclasses.fields(cls) if (take := _taker(hints[f.name]))]

    def convert(event: Any) -> dict[str, Any]:
        fields = {name: getattr(event, name) for name in plain}
        fields.update((name, take(getattr(event, name))) for name, take in nested)
        return fields

    return convert


def _giver(annotation: Any) -> Callable[[Any], Any] | None:
    """How what fastavro read becomes a field's value; None where it is already one."""
    if dataclasses.is_dataclass(annotation):
        return _to_event(typing.cast(type, annotation))
    arguments = typing.get_args(annotation)
    inner = _giver(arguments[0]) if arguments else None
    if typing.get_origin(annotation) is tuple:
        return (lambda values: tuple(map(inner, values))) if inner else tuple
    return (lambda value: None if value is None else inner(value)) if inner else None


def _to_event(cls: type) -> Callable[[dict[str, Any]], Any]:
    hints = typing.get_type_hints(cls)
    nested = [(f.name, give) for f in dataclasses.fields(cls) if (give := _giver(hints[f.name]))]

    def build(fields: dict[str, Any]) -> Any:
        for name, give in nested:
            fields[name] = give(fields[name])
        return cls(**fields)

    return build


_CLASSES = {f"{NAMESPACE}.{cls.__name__}": cls for cls in EVENTS}
_READERS = {cls: _to_dict(cls) for cls in EVENTS}
_BUILDERS = {cls: _to_event(cls) for cls in EVENTS}
_QUICK: dict[type, Callable[[bytes], Any]] = {Tokens: read_tokens}
