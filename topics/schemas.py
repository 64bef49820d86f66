"""The topic `schemas`: published by a writer before its first record, read by whoever meets a fingerprint it lacks."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

from schemas.avro_schema import EVENTS, canonical, fingerprint_of, schema_of
from schemas.codec import Codec, CodecError, UnknownSchema
from schemas.events import SchemaPublished
from topics.catalog import SCHEMAS
from topics.log import BRIEFLY_MS, Append, Log, Place, Reader

PLACE = Place(SCHEMAS, 0)
PUBLISH_S = 60.0
UNKNOWN_FOR_S = 1.0
UNKNOWN_MOST = 1_000


def publish(log: Log, codec: Codec) -> None:
    """Appends every schema that this version writes. Raises DeliveryFailed; to be called before the first record.

    A broker that ten processes begin with at once may take long for the first of it.
    """
    producer = log.producer(PUBLISH_S)
    for cls in EVENTS:
        schema = schema_of(cls)
        fingerprint = fingerprint_of(schema)
        published = SchemaPublished(fingerprint, canonical(schema))
        producer.send(Append(PLACE, fingerprint.hex().encode(), codec.encode(published)))
    producer.flush(PUBLISH_S)
    producer.close()


class Decoder:
    """A codec that looks unknown schemas up in the log, once per growth of the topic. Threads may share it.

    A schema that the topic does not hold is not looked for again within a second: a writer publishes it first, and
    asking the cluster for every bad record would let anyone who can append slow all readers down.
    """

    def __init__(self, log: Log, codec: Codec, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._codec, self._clock = codec, clock
        self._unknown_until: dict[bytes, float] = {}
        self._read_to = -1
        self._reader: Reader | None = None
        self._lock = threading.Lock()

    def decode(self, value: bytes | None) -> object:
        """As `Codec.decode`; UnknownSchema only if the topic does not hold it either."""
        try:
            return self._codec.decode(value)
        except UnknownSchema as error:
            with self._lock:
                if self._clock() < self._unknown_until.get(error.key, 0.0):
                    raise
                self._refresh()
        try:
            return self._codec.decode(value)
        except UnknownSchema as error:
            with self._lock:
                self._remember(error.key)
            raise

    def _remember(self, unknown: bytes) -> None:
        self._unknown_until.pop(unknown, None)
        self._unknown_until[unknown] = self._clock() + UNKNOWN_FOR_S
        if len(self._unknown_until) > UNKNOWN_MOST:
            del self._unknown_until[next(iter(self._unknown_until))]

    def _refresh(self) -> None:
        """Learns what was published since the last time."""
        if self._reader is None:
            self._reader = self._log.reader(hold_ms=BRIEFLY_MS)
        reader, end = self._reader, self._reader.end(PLACE)
        if end <= self._read_to:
            return
        reader.add(PLACE, max(self._read_to, reader.begin(PLACE)))
        while reader.position(PLACE) < end:
            for record in reader.poll(1_000, 1.0):
                self._learn(record.value)
        reader.remove(PLACE)
        self._read_to = end

    def _learn(self, value: bytes | None) -> None:
        try:
            published = self._codec.decode(value)
            if isinstance(published, SchemaPublished):
                self._codec.learn(json.loads(published.schema))
        except (CodecError, json.JSONDecodeError, RecursionError):
            return  # a foreign record among the schemas teaches nothing
