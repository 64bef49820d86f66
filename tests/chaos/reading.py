"""A History from a real stack: the raw log, every byte that clients got, the store's file and what processes hold.

`Judge` reads on from where it has read to, so that asking again until all is quiet is cheap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from schemas.events import GenerateRequested, MessagePosted
from schemas.ids import ConversationId, ReplyId, UserId
from schemas.tokenizer import ChatTokenizer
from streams.supervisor import MOST_ATTEMPTS
from tests.chaos.client import Client
from tests.chaos.plan import LIMITED
from tests.chaos.troubled import CONTEXT, TroubledStack
from tests.chaos.undisturbed import Whole
from tests.checker.history import CHECKED_TOPICS, Asked, Entry, History, Undisturbed
from tests.checker.rules import asked, check
from tests.checker.telling import Told, tell
from tests.checker.violation import Violation
from tests.services.records import Records
from topics.catalog import REPLIES
from topics.store.sqlite import SqliteStore

# A reply may end so long after its deadline, and as much later as its supervisor, or the broker, was away.
GRACE_S = 30.0
PATIENT_MS = 100_000
EXPECTED = ("stream", "200", "202", "204", "409", "429", "503")

Conversation = tuple[UserId, ConversationId]


class Judge:
    """`whole` computes what replies are when nothing goes wrong. `away_s`: how long nobody could have ended a reply."""

    def __init__(self, stack: TroubledStack, whole: Whole) -> None:
        self.stack = stack
        self.away_s = 0.0
        self._whole = whole
        self._computed: dict[Asked, Undisturbed] = {}
        self._tokenizer = ChatTokenizer.load(stack.model)
        self._log = Records(stack.kafka)

    def close(self) -> None:
        self._log.__exit__(None, None, None)

    def violations(self, clients: Sequence[Client]) -> list[Violation]:
        """Of everything that has happened so far; some that are found now may be none when all is quiet."""
        told = self.stack.tells_usage(LIMITED)
        history = self.history(clients)
        history = replace(history, left={**history.left, "balances that were not told": int(not told)})
        told = self.told(history)
        return [*check(history), *given_up(told), *unexpected(history)]

    def told(self, history: History) -> dict[ReplyId, Told]:
        return tell(history.of(REPLIES))

    def history(self, clients: Sequence[Client]) -> History:
        entries = tuple(self._entries())
        return History(
            entries=entries,
            streams=tuple(stream for client in clients for stream in client.streams()),
            requests=tuple(request for client in clients for request in client.requests()),
            undisturbed=self._undisturbed(entries),
            stored=self._stored(clients),
            left=_without_end(clients) | held(self.stack),
            grace_ms=int((GRACE_S + self.away_s) * 1000),
            context=CONTEXT,
            template=self._tokenizer,
        )

    def _entries(self) -> Iterator[Entry]:
        for topic in CHECKED_TOPICS:
            for record, event in self._log.read(topic):
                if event is not None:
                    yield Entry(record.place, record.offset, record.timestamp_ms, record.key, event)

    def _undisturbed(self, entries: Sequence[Entry]) -> dict[Asked, Undisturbed]:
        """Of every message that became a request, by the first of its requests."""
        posted = {e.event.reply: asked(e.event) for e in entries if isinstance(e.event, MessagePosted)}
        first: dict[ReplyId, GenerateRequested] = {}
        for request in (e.event for e in entries if isinstance(e.event, GenerateRequested) and e.event.attempt == 1):
            if request.reply in posted and posted[request.reply] not in self._computed:
                first.setdefault(request.reply, request)
        for reply, whole in self._whole(first.values()).items():
            self._computed[posted[reply]] = whole
        return self._computed

    def _stored(self, clients: Sequence[Client]) -> dict[Conversation, tuple[tuple[str, str, str], ...]]:
        store = SqliteStore(self.stack.folder / "store.sqlite")
        try:
            conversations = {(UserId(c.ask.user), ConversationId(c.ask.conversation)) for c in clients}
            return {
                (user, conversation): tuple(
                    (each.turn.role, each.turn.text, each.turn.status)
                    for each in store.messages(user, conversation, 1_000)
                )
                for user, conversation in sorted(conversations)
            }
        finally:
            store.close()


HELD = {
    "laneway_edge_streams": "streams",
    "laneway_replica_running_replies": "running replies",
    "laneway_replica_waiting_replies": "waiting replies",
    "laneway_replica_dropped_replies": "attempts named as dropped",
    "laneway_replica_blocks": "blocks",
    "laneway_replica_free_blocks": "free blocks",
    "laneway_queue_requests": "queued requests",
}


def _without_end(clients: Sequence[Client]) -> dict[str, int]:
    return {f"client {client.name} without an end": int(client.done is None) for client in clients}


def held(stack: TroubledStack) -> dict[str, int]:
    """What processes say that they hold for a reply or a client; one that does not say counts."""
    found: dict[str, int] = {}
    for name in stack.names:
        if name == "kafka":
            continue
        samples = stack.metrics(name)
        found[f"{name} that does not answer"] = int(samples is None)
        for series, what in HELD.items():
            for value in (samples or {}).get(series, {}).values():
                found[f"{what} of {name}"] = found.get(f"{what} of {name}", 0) + int(value)
        if f"blocks of {name}" in found:
            found[f"blocks of {name}"] -= found.pop(f"free blocks of {name}")
    return found


def given_up(told: dict[ReplyId, Told]) -> Iterator[Violation]:
    """Replies that had all the time that they needed, and were failed nevertheless."""
    for reply in told.values():
        if reply.state != "failed" or reply.accepted is None or reply.first is None:
            continue
        patient = reply.accepted.deadline_ms - reply.first.at_ms >= PATIENT_MS
        lost = reply.reason == "replica_lost" and reply.attempt >= MOST_ATTEMPTS
        if not lost and (patient or reply.reason != "deadline"):
            yield Violation("given up", reply.reply, (), reply.reason, "an end by the replica or the user")


def unexpected(history: History) -> Iterator[Violation]:
    """Answers that no client of these should ever be given."""
    for request in history.requests:
        for answer in request.answers:
            if answer not in EXPECTED:
                yield Violation("answer", None, (), (request.client, request.what, answer), f"one of {EXPECTED}")
