"""Unknown schemas: found in the log when they are there, and cheap to miss when they are not."""

import json
from typing import Any

import pytest

from schemas.avro_schema import canonical, fingerprint_of
from schemas.codec import Codec, UnknownSchema, UnknownType
from schemas.events import SchemaPublished
from topics.catalog import SCHEMAS
from topics.log import Append, Place, Reader
from topics.memory import MemoryLog
from topics.schemas import PLACE, UNKNOWN_FOR_S, UNKNOWN_MOST, Decoder

NEWER = {"type": "record", "name": "laneway.Newer", "fields": []}


class Rig:
    """A decoder whose questions for the end of `schemas` are counted."""

    def __init__(self) -> None:
        self.log, self.codec, self.now, self.asked = MemoryLog({SCHEMAS: 1}, lambda: 0), Codec(), 0.0, 0
        reader = self.log.reader
        rig = self

        class Counted:
            def reader(self, **how: Any) -> Reader:
                made: Any = reader(**how)
                made.end = rig.counted(made.end)
                return made

        self.decoder = Decoder(Counted(), self.codec, lambda: self.now)

    def counted(self, end: Any) -> Any:
        def ask(place: Place) -> int:
            self.asked += 1
            return int(end(place))

        return ask

    def publish(self, schema: dict[str, Any]) -> None:
        event = SchemaPublished(fingerprint_of(schema), canonical(schema))
        self.log.producer().send(Append(PLACE, b"k", self.codec.encode(event)))

    def look_up(self, fingerprint: bytes) -> type[Exception]:
        try:
            self.decoder.decode(b"\xc3\x01" + fingerprint)
        except (UnknownSchema, UnknownType) as error:
            return type(error)
        raise AssertionError(fingerprint)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_schema_that_was_published_is_found(rig: Rig) -> None:
    rig.log.producer().send(Append(PLACE, b"k", json.dumps({"no": "event"}).encode()))
    rig.publish(NEWER)
    assert [rig.look_up(fingerprint_of(NEWER)) for _ in range(5)] == [UnknownType] * 5
    assert rig.asked == 1


def test_a_flood_of_an_unknown_one_asks_the_cluster_once_a_second(rig: Rig) -> None:
    for _ in range(100):
        assert rig.look_up(fingerprint_of(NEWER)) is UnknownSchema
    assert rig.asked == 1
    rig.publish(NEWER)
    rig.now = UNKNOWN_FOR_S
    assert (rig.look_up(fingerprint_of(NEWER)), rig.asked) == (UnknownType, 2)


def test_what_is_new_is_found_while_others_are_known_to_be_missing(rig: Rig) -> None:
    rig.look_up(b"12345678")
    rig.publish(NEWER)
    assert rig.look_up(fingerprint_of(NEWER)) is UnknownType


def test_the_missing_that_are_remembered_are_bounded(rig: Rig) -> None:
    for n in range(UNKNOWN_MOST + 50):
        rig.look_up(n.to_bytes(8, "big"))
    assert len(rig.decoder._unknown_until) == UNKNOWN_MOST
