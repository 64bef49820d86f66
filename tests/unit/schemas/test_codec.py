"""Every event survives its bytes, every committed schema stays readable, and no bytes break a reader."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from itertools import product
from typing import Any

import avro.compatibility
import avro.schema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.avro_schema import EVENTS, Schema, fingerprint_of, golden, schema_of
from schemas.codec import BadRecord, BadSchema, Codec, CodecError, UnknownSchema, UnknownType, confluent_id
from schemas.events import AbortReply, pack_ids, unpack_ids
from schemas.ids import Incarnation, ReplyId
from schemas.reply_records import Tokens

CODEC = Codec()
ABORT = AbortReply(ReplyId("r"), 1, Incarnation("a"))
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=20),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    bytes: st.binary(max_size=20),
}


def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of an event's field, within what Avro can hold."""
    annotation = getattr(annotation, "__supertype__", annotation)
    if annotation in PLAIN:
        return PLAIN[annotation]
    if annotation is Tokens:
        texts = st.lists(st.text(max_size=5), min_size=1, max_size=4)
        return st.builds(token_record, values(int), values(str), st.integers(1, 2**40), texts)
    if dataclasses.is_dataclass(annotation):
        hints = typing.get_type_hints(annotation)
        return st.builds(
            annotation, **{field.name: values(hints[field.name]) for field in dataclasses.fields(annotation)}
        )
    inner = values(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return st.none() | inner
    return st.lists(inner, max_size=3).map(tuple)


def token_record(attempt: int, incarnation: str, first: int, texts: list[str]) -> Tokens:
    return Tokens(attempt, Incarnation(incarnation), first, pack_ids(range(len(texts))), tuple(texts))


ANY_EVENT = st.sampled_from(EVENTS).flatmap(values)


@pytest.mark.parametrize("cls", EVENTS)
@settings(max_examples=25)
@given(data=st.data())
def test_an_event_survives_both_encodings(cls: type, data: st.DataObject) -> None:
    event = data.draw(values(cls))
    assert CODEC.decode(CODEC.encode(event)) == event
    assert CODEC.decode(CODEC.encode_confluent(event)) == event


@pytest.mark.parametrize("cls", EVENTS)
def test_the_newest_committed_schema_is_the_one_of_the_class(cls: type) -> None:
    assert golden(cls)[-1] == schema_of(cls), "run `python -m schemas.avro_schema` and commit the new version"


def reads(reader: Schema, writer: Schema) -> bool:
    parsed = [avro.schema.parse(json.dumps(schema)) for schema in (reader, writer)]
    checker = avro.compatibility.ReaderWriterCompatibilityChecker()
    found = checker.get_compatibility(*parsed).compatibility
    return found is avro.compatibility.SchemaCompatibilityType.compatible


@pytest.mark.parametrize("cls", EVENTS)
def test_every_two_versions_of_a_schema_read_each_other(cls: type) -> None:
    for reader, writer in product(golden(cls), repeat=2):
        assert reads(reader, writer)


def test_the_compatibility_check_sees_a_field_that_is_missing() -> None:
    schema = schema_of(AbortReply)
    without = {**schema, "fields": schema["fields"][:-1]}
    assert reads(without, schema)
    assert not reads(schema, without)


def test_no_two_schemas_share_a_fingerprint_or_an_id() -> None:
    schemas = [schema for cls in EVENTS for schema in golden(cls)]
    assert len({fingerprint_of(schema) for schema in schemas}) == len(schemas)
    assert len({confluent_id(schema) for schema in schemas}) == len(schemas)


@given(ANY_EVENT, st.data())
def test_bytes_cut_short_or_followed_by_more_are_a_bad_record(event: object, data: st.DataObject) -> None:
    value = data.draw(st.sampled_from([CODEC.encode(event), CODEC.encode_confluent(event)]))
    cut = data.draw(st.integers(0, len(value) - 1))
    for broken in (value[:cut], value + data.draw(st.binary(min_size=1, max_size=5))):
        with pytest.raises(CodecError):
            CODEC.decode(broken)


@settings(max_examples=300)
@given(st.sampled_from(EVENTS), st.binary(max_size=60))
def test_random_bytes_are_an_event_or_a_codec_error(cls: type, noise: bytes) -> None:
    for value in (
        noise,
        b"\xc3\x01" + fingerprint_of(schema_of(cls)) + noise,
        b"\x00" + confluent_id(schema_of(cls)) + noise,
    ):
        try:
            event = CODEC.decode(value)
        except CodecError:
            continue
        assert type(event) in EVENTS


@settings(max_examples=200)
@given(ANY_EVENT, st.data())
def test_a_changed_byte_is_an_event_or_a_codec_error(event: object, data: st.DataObject) -> None:
    value = bytearray(CODEC.encode(event))
    value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert type(CODEC.decode(bytes(value))) in EVENTS
    except CodecError as error:
        assert str(error)


def test_a_tombstone_is_no_event() -> None:
    with pytest.raises(BadRecord, match="tombstone"):
        CODEC.decode(None)


def test_an_unknown_fingerprint_names_what_to_look_up() -> None:
    with pytest.raises(UnknownSchema) as raised:
        CODEC.decode(b"\xc3\x01" + b"\x01\x02\x03\x04\x05\x06\x07\x08" + b"body")
    assert raised.value.key == b"\x01\x02\x03\x04\x05\x06\x07\x08"


def test_a_schema_of_a_type_that_is_not_known_makes_its_records_skippable() -> None:
    codec = Codec()
    schema = {"type": "record", "name": "Invented", "namespace": "laneway", "fields": []}
    codec.learn(schema)
    with pytest.raises(UnknownType, match=r"laneway\.Invented"):
        codec.decode(b"\xc3\x01" + fingerprint_of(schema))


def test_a_record_of_a_newer_version_is_read_without_its_new_field() -> None:
    codec, schema = Codec(), schema_of(AbortReply)
    newer = {**schema, "fields": [*schema["fields"], {"name": "why", "type": "string", "default": ""}]}
    codec.learn(newer)
    written_body = CODEC.encode(ABORT)[10:] + b"\x06dead"[:4]
    assert codec.decode(b"\xc3\x01" + fingerprint_of(newer) + written_body) == ABORT


def test_a_value_that_does_not_fit_its_field_is_refused_by_the_writer() -> None:
    with pytest.raises((TypeError, ValueError)):
        CODEC.encode(dataclasses.replace(ABORT, attempt="one"))
    with pytest.raises((TypeError, ValueError)):
        CODEC.encode(dataclasses.replace(ABORT, attempt=2**63))


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_token_ids_survive_packing(ids: list[int]) -> None:
    assert unpack_ids(pack_ids(ids)) == tuple(ids)
    with pytest.raises(ValueError, match="no whole number"):
        unpack_ids(pack_ids(ids) + b"x")


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        7,
        [],
        {},
        {"type": "array", "items": "int"},
        {"type": "record", "name": "laneway.EdgeBeat", "fields": [{"name": "incarnation", "type": "nowhere"}]},
    ],
)
def test_what_is_no_schema_of_a_record_is_not_learnt(schema: Any) -> None:
    codec = Codec()
    with pytest.raises(BadSchema):
        codec.learn(schema)


def test_a_foreign_schema_under_a_name_of_ours_makes_bad_records() -> None:
    schema = {"type": "record", "name": "laneway.EdgeBeat", "fields": [{"name": "incarnation", "type": "int"}]}
    codec = Codec()
    codec.learn(schema)
    with pytest.raises(BadRecord):
        codec.decode(b"\xc3\x01" + fingerprint_of(schema) + b"\x02")
