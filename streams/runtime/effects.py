"""What a stage wants and only the world has: each answer is an output, which comes back to the stage as a record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from schemas.codec import CodecError
from schemas.events import GenerateRequested, HistoryLoaded
from schemas.reply_records import Failed
from streams.admission import MOST_KEYS
from streams.stage import ContinuationWanted, HistoryWanted, Wanted
from topics.catalog import DAY
from topics.errors import Unavailable
from topics.log import Log, Place, Record
from topics.outputs import Output, Routes
from topics.schemas import Decoder
from topics.store.contract import Store

KEYS_REMEMBERED_MS = DAY
FETCH_ATTEMPTS = 50


@dataclass(frozen=True)
class Effects:
    """Reads the store and the log for the stages. `limit_tokens` bounds the history that intake is given."""

    log: Log
    store: Store
    decoder: Decoder
    routes: Routes
    limit_tokens: int
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000

    def perform(self, wanted: Wanted) -> Output:
        """Blocks for the store or the log; called beside the loop."""
        if isinstance(wanted, HistoryWanted):
            return self._history(wanted)
        return self._continuation(wanted)

    def _history(self, wanted: HistoryWanted) -> Output:
        since = self.now_ms() - KEYS_REMEMBERED_MS
        try:
            history = self.store.history(wanted.user, wanted.conversation, self.limit_tokens, since)
            loaded = HistoryLoaded(wanted.user, wanted.conversation, True, history.turns, history.keys[-MOST_KEYS:])
        except Unavailable:
            loaded = HistoryLoaded(wanted.user, wanted.conversation, False, (), ())
        return self.routes.message(wanted.user, loaded)

    def _continuation(self, wanted: ContinuationWanted) -> Output:
        origin = wanted.origin
        record = self._fetch(Place(origin.topic, origin.partition), origin.offset)
        try:
            request = self.decoder.decode(record.value) if record else None
        except CodecError:
            request = None
        if not isinstance(request, GenerateRequested) or request.reply != wanted.reply:
            return self.routes.reply(wanted.reply, Failed("request_lost"))
        continued = replace(request, attempt=wanted.attempt, accepted=wanted.accepted, tier="resume")
        return self.routes.generate(continued)

    def _fetch(self, place: Place, offset: int) -> Record | None:
        """The record at an offset; None if it has expired."""
        reader = self.log.reader()
        try:
            reader.add(place, offset)
            for _ in range(FETCH_ATTEMPTS):
                for record in reader.poll(1, 0.2):
                    return record if record.offset == offset else None
                if reader.position(place) > offset:
                    return None
            raise Unavailable(f"{place} gave no record at {offset}")
        finally:
            reader.close()
