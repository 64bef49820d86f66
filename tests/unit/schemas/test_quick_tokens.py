"""What is read quickly is what its schema says, to the last byte, or is left to the general way."""

from __future__ import annotations

from io import BytesIO

from fastavro import parse_schema, schemaless_reader
from hypothesis import given
from hypothesis import strategies as st

from schemas.avro_schema import schema_of
from schemas.codec import Codec
from schemas.events import pack_ids
from schemas.ids import Incarnation
from schemas.quick_tokens import read_tokens
from schemas.reply_records import LikelyToken, TokenLogprob, Tokens

CODEC = Codec()
SCHEMA = parse_schema(schema_of(Tokens))
PREFIX = 10


@st.composite
def token_records(draw: st.DrawFn) -> Tokens:
    texts = draw(st.lists(st.text(max_size=80), min_size=1, max_size=70))
    ids = pack_ids(draw(st.lists(st.integers(0, 2**32 - 1), min_size=len(texts), max_size=len(texts))))
    numbers = st.integers(-(2**62), 2**62 - 1)
    return Tokens(draw(numbers), Incarnation(draw(st.text())), draw(st.integers(1, 2**62 - 1)), ids, tuple(texts))


def body_of(record: Tokens) -> bytes:
    return CODEC.encode(record)[PREFIX:]


def read_by_schema(body: bytes) -> Tokens:
    stream = BytesIO(body)
    fields = schemaless_reader(stream, SCHEMA, None)
    assert stream.tell() == len(body)
    return Tokens(**fields | {name: tuple(fields[name]) for name in ("texts", "logprobs")})


@given(token_records())
def test_tokens_of_the_usual_form_are_read_quickly(record: Tokens) -> None:
    assert read_tokens(body_of(record)) == record == read_by_schema(body_of(record))


def test_tokens_with_logprobs_are_left_to_their_schema() -> None:
    logprob = TokenLogprob(b"a", -0.5, (LikelyToken(b"b", -1.5),))
    record = Tokens(1, Incarnation("i"), 1, pack_ids((7,)), ("a",), (logprob,))
    assert read_tokens(body_of(record)) is None
    assert CODEC.decode(CODEC.encode(record)) == record


@given(token_records(), st.data())
def test_a_changed_byte_is_read_as_its_schema_says_or_left_to_it(record: Tokens, data: st.DataObject) -> None:
    body = bytearray(body_of(record))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    quick = read_tokens(bytes(body))
    assert quick is None or quick == read_by_schema(bytes(body))


@given(token_records(), st.data())
def test_a_record_cut_short_or_followed_by_more_is_left_to_its_schema(record: Tokens, data: st.DataObject) -> None:
    body = body_of(record)
    assert read_tokens(body[: data.draw(st.integers(0, len(body) - 1))]) is None
    assert read_tokens(body + data.draw(st.binary(min_size=1))) is None
