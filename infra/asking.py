"""What commands write into `messages`, and the answer that intake gives in `replies`.

In: records for one user, or for every partition. Out: once the log has them; an answer once it is read.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Sequence

from uuid_utils import uuid7

from schemas.codec import Codec, CodecError
from schemas.ids import Incarnation, ReplyId, UserId, mint_reply_id
from schemas.quota_records import PlansLoaded, UsageAsked
from schemas.reply_records import UsageTold
from topics.catalog import INTAKE_STATE, MESSAGES
from topics.config import KafkaConfig
from topics.errors import Unavailable
from topics.kafka import KafkaLog
from topics.log import BRIEFLY_MS, Place
from topics.outputs import Encoder, Output, Routes
from topics.schemas import publish
from topics.subscription import Delivery
from topics.tail import Tail

ACKNOWLEDGE_S = 30.0
ANSWER_S = 30.0
MODELS_S = 10.0


class Asking:
    """A command at the log of a cell. Methods raise TopicsError when the cluster does not do its part."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config, self._log, self._codec = config, KafkaLog(config), Codec()
        self.routes = Routes(config.sizes)

    def write(self, outputs: Iterable[Output]) -> None:
        """Appends, and waits until the log has it."""
        publish(self._log, self._codec)
        encoder = Encoder(self._codec, self._config.sizes, Incarnation(f"command-{uuid7().hex[-12:]}"))
        producer = self._log.producer()
        for output in outputs:
            producer.send(encoder.append(output))
        producer.flush(ACKNOWLEDGE_S)
        producer.close()

    def everywhere(self, event: object) -> list[Output]:
        """The same record for each partition of `messages`."""
        return [Output(Place(MESSAGES, partition), "", event) for partition in range(self._config.users)]

    def models(self) -> tuple[str, ...]:
        """Those that intake serves; none if it is too old to say. Raises Unavailable when no intake answers."""
        return self.usage(UserId(""), "", MODELS_S).models

    def usage(self, user: UserId, plan: str, patience_s: float = ANSWER_S) -> UsageTold:
        """Raises Unavailable when no intake answers."""
        # Nobody looks at the seal of a reply that no client is given.
        reply = mint_reply_id(0, secrets.randbelow(self._config.replies), uuid7().hex, b"no client is given it")
        answer = Answer(self._codec)
        tail = Tail(self._log, answer.deliver)
        tail.open(reply)
        tail.start(answer.failed)
        try:
            self.write([self.routes.message(user, UsageAsked(user, ReplyId(reply), plan))])
            if not answer.done.wait(patience_s) or answer.told is None:
                why = answer.error or f"no intake has answered in {patience_s:g} s; `laneway status` says what runs"
                raise Unavailable(str(why))
            return answer.told
        finally:
            tail.stop()

    def plans(self) -> dict[int, PlansLoaded]:
        """The plans that hold, by partition, as intake has committed them."""
        reader, found = self._log.reader(committed_only=True, hold_ms=BRIEFLY_MS), {}
        places = [Place(INTAKE_STATE, partition) for partition in range(self._config.users)]
        begins, ends = {place: reader.begin(place) for place in places}, {place: reader.end(place) for place in places}
        for place, begin in begins.items():
            reader.add(place, begin)
        while any(reader.position(place) < end for place, end in ends.items()):
            for record in reader.poll(2_000, 0.1):
                if record.key == b"/:plans":
                    found[record.place.partition] = self._codec.decode(record.value)
        reader.close()
        return found


class Answer:
    """The one record that is waited for."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.done = threading.Event()
        self.told: UsageTold | None = None
        self.error: BaseException | None = None

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            if delivery.failure:
                self.failed(delivery.failure)
            for record in delivery.records:
                try:
                    event = self._codec.decode(record.value)
                except CodecError as error:
                    self.failed(error)
                    continue
                if isinstance(event, UsageTold):
                    self.told = event
                    self.done.set()

    def failed(self, error: BaseException) -> None:
        self.error = error
        self.done.set()
