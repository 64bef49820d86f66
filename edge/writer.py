"""The edge's way into the log: outputs in, acknowledgements out, all on the event loop's thread.

A producer is used by one thread, so a timer polls it while something is unacknowledged. Sending waits when the
producer's queue is full, so it is refused long before: an edge without a broker answers 503 and stays alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from edge.errors import NotNow
from topics.errors import TopicsError
from topics.log import Producer
from topics.outputs import Encoder, Output

logger = logging.getLogger(__name__)

POLL_EVERY_S = 0.005
MOST_UNACKNOWLEDGED = 10_000
FLUSH_TIMEOUT_S = 2.0


class Writer:
    """Belongs to the running loop. `working`: the newest that was written was acknowledged; None before the first."""

    def __init__(self, producer: Producer, encoder: Encoder) -> None:
        self._producer, self._encoder = producer, encoder
        self._loop = asyncio.get_running_loop()
        self._unacknowledged = 0
        self._timer: asyncio.TimerHandle | None = None
        self.working: bool | None = None

    def send(self, output: Output) -> asyncio.Future[None]:
        """Appends; the future is done when the log has the record, or has failed to take it. Raises NotNow."""
        if self._unacknowledged >= MOST_UNACKNOWLEDGED:
            raise NotNow("the log does not acknowledge what is written", retry_after_s=1)
        outcome: asyncio.Future[None] = self._loop.create_future()

        def delivered(failure: Exception | None) -> None:
            self._unacknowledged -= 1
            self._note(failure)
            if outcome.done():
                return
            if failure is None:
                outcome.set_result(None)
            else:
                outcome.set_exception(failure)
                outcome.exception()  # most outputs are not waited for: asyncio is not to complain about those

        try:
            self._producer.send(self._encoder.append(output), delivered)
        except TopicsError as error:
            self._note(error)
            raise NotNow("the log does not take what is written", retry_after_s=1) from error
        self._unacknowledged += 1
        if self._timer is None:
            self._timer = self._loop.call_later(POLL_EVERY_S, self._poll)
        return outcome

    def tell(self, output: Output) -> None:
        """Appends what nobody waits for."""
        with contextlib.suppress(NotNow):
            self.send(output)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            self._producer.flush(FLUSH_TIMEOUT_S)
        except TopicsError as error:
            logger.warning("the last records were not acknowledged: %s", error)
        self._producer.close()

    def _poll(self) -> None:
        self._timer = None
        self._producer.poll()
        if self._unacknowledged and self._timer is None:
            self._timer = self._loop.call_later(POLL_EVERY_S, self._poll)

    def _note(self, failure: Exception | None) -> None:
        """Logs the first failure of a row, not each."""
        if failure is not None and self.working is not False:
            logger.warning("the log does not take what is written: %s", failure)
        self.working = failure is None
