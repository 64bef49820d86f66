"""What a stage wants and only the world has: each answer is an output, which comes back to the stage as a record."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from schemas.codec import CodecError
from schemas.events import GenerateRequested, HistoryLoaded, Origin
from schemas.reply_records import Failed
from streams.active import KEPT_IDLE_MS
from streams.admission import MOST_KEYS
from streams.bounds import LONGEST_NAME_BYTES, MOST_SYSTEM_BYTES, newest_turns
from streams.runtime.requests import Requests
from streams.stage import ContinuationWanted, HistoryWanted, Wanted
from topics.catalog import DAY, LARGEST_REQUEST, MINUTE, TURNS
from topics.errors import Unavailable
from topics.kafka_errors import Sparsely
from topics.log import Place, Record
from topics.outputs import Output, Routes
from topics.schemas import Decoder
from topics.store.contract import Store
from topics.store.progress import Progress
from topics.telemetry.logs import about

logger = logging.getLogger(__name__)
logger.addFilter(Sparsely())

KEYS_REMEMBERED_MS = DAY
# What is older the store must have: intake forgets nothing sooner, and has written it by then.
FORGOTTEN_MS = KEPT_IDLE_MS - MINUTE


@dataclass(frozen=True)
class Effects:
    """Reads the store and the backlogs for the stages. `limit_tokens` bounds the history that intake is given."""

    requests: Requests
    store: Store
    progress: Progress
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
        now_ms, conversation = self.now_ms(), (wanted.user, wanted.conversation)
        since = now_ms - KEYS_REMEMBERED_MS
        try:
            turns = Place(TURNS, self.routes.of_user(wanted.user))
            if not self.progress.has_all_before(turns, now_ms - FORGOTTEN_MS):
                raise Unavailable("the store has not been told yet what intake has forgotten")
            if wanted.deleted_ms > (self.store.deleted_ms(*conversation) if wanted.deleted_ms else 0):
                raise Unavailable("the store has not heard yet that the conversation was deleted")
            history = self.store.history(*conversation, self.limit_tokens, since, wanted.leaf)
            newest = newest_turns(history.turns, self.limit_tokens)
            keys = tuple(key for key in history.keys if len(key.key) <= LONGEST_NAME_BYTES)[-MOST_KEYS:]
            found = history.found
            system = history.system if len(history.system.encode()) <= MOST_SYSTEM_BYTES else ""
            loaded = HistoryLoaded(*conversation, True, newest, keys, wanted.leaf, found, system, wanted.deleted_ms)
        except Unavailable as error:
            logger.error("history of a conversation cannot be read", extra=about(error=error))
            loaded = HistoryLoaded(*conversation, False, (), (), wanted.leaf, deleted_ms=wanted.deleted_ms)
        return self.routes.message(wanted.user, loaded)

    def _continuation(self, wanted: ContinuationWanted) -> Output:
        request = self._request(wanted)
        if request is None:
            return self.routes.reply(wanted.reply, Failed("request_lost"))
        continued = replace(request, attempt=wanted.attempt, accepted=wanted.accepted, tier="resume")
        return self.routes.generate(continued)

    def _request(self, wanted: ContinuationWanted) -> GenerateRequested | None:
        """The request that a replica was given; None if it lies there no more, or never did."""
        record = self._fetch(wanted.origin)
        try:
            request = self.decoder.decode(record.value) if record else None
        except CodecError:
            return None
        if record is None or not isinstance(request, GenerateRequested) or request.reply != wanted.reply:
            return None
        size = len(record.value or b"") - len(request.accepted) + len(wanted.accepted)
        return request if request.pool in self.routes.sizes.pools and size <= LARGEST_REQUEST else None

    def _fetch(self, origin: Origin) -> Record | None:
        """The record of a backlog at an offset; None if there is none, or none any more."""
        if not self.routes.has_backlog(origin.topic, origin.partition):
            return None
        return self.requests.record(Place(origin.topic, origin.partition), origin.offset)
