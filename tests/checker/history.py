"""What a run has left, as plain values: the records of the log, and what clients asked for and were sent.

In: any Log, read committed. Out: a History, which `tests/checker/rules.py` judges. Whoever runs a cell fills in the
rest: a client's bytes as they came, and what was still held when everything had ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from schemas.codec import UnknownType
from schemas.ids import ConversationId, MessageId, ReplyId, UserId
from schemas.tokenizer import ChatTokenizer
from topics.catalog import DEAD_LETTERS, EDGES, MESSAGES, REPLICAS, REPLIES, TIERS, TURNS, USAGE, generate_topic
from topics.log import Log, Place, Record
from topics.outputs import reply_of_key
from topics.schemas import Decoder

GENERATE = generate_topic("main", "")
CHECKED_TOPICS = (
    MESSAGES,
    REPLIES,
    TURNS,
    USAGE,
    DEAD_LETTERS,
    REPLICAS,
    EDGES,
    *(generate_topic("main", tier) for tier in TIERS),
)
BATCH = 2_000

Asked: TypeAlias = tuple[UserId, ConversationId, str]


@dataclass(frozen=True, slots=True)
class Entry:
    """One decoded record where it lies in the log; `at_ms` is the time of its append."""

    place: Place
    offset: int
    at_ms: int
    key: bytes | None
    event: Any

    @property
    def reply(self) -> ReplyId | None:
        return reply_of_key(self.key)


@dataclass(frozen=True, slots=True)
class Stream:
    """One SSE response: what `client` got of `reply` after the event id `after`, from the first byte to the last.

    `whole`: the server ended it. Else it was cut, perhaps within an event. In the order in which they were opened.
    """

    client: str
    reply: ReplyId
    after: int | None
    body: bytes
    whole: bool


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request and every answer that came. `broken`: the connection was lost before one did."""

    client: str
    what: str
    answers: tuple[str, ...]
    broken: bool = False


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """What the reply to a request is when nothing goes wrong: each token's id and text, and why it ends."""

    ids: tuple[int, ...]
    texts: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Waits:
    """How long a reply goes on for nobody, and one that was to be cancelled; and since when nothing goes wrong."""

    grace_ms: int
    cancel_ms: int
    healed_ms: int = 0


@dataclass(frozen=True, slots=True)
class Remembered:
    """What intake holds of a conversation: the messages at hand, and the newest."""

    user: UserId
    conversation: ConversationId
    messages: tuple[MessageId, ...]
    leaf: MessageId | None


@dataclass(frozen=True)
class History:
    """`undisturbed`, by (user, conversation, client key), is compared where it is given. `left` counts what is held
    by whom. `stored` are a conversation's (role, text, status) as the store has them. A reply may end `grace_ms` after
    its deadline: as long as nobody could end it, and the supervisor's own time to act. Prompts are compared with the
    turns before them where the `context` is given that they had to fit, token by token where their `template` is, and
    who listened where it is given how long the cell `waits`. `titles` are those that the store shows, None for none.
    """

    entries: tuple[Entry, ...]
    streams: tuple[Stream, ...] = ()
    requests: tuple[Request, ...] = ()
    undisturbed: Mapping[Asked, Undisturbed] = field(default_factory=dict)
    stored: Mapping[tuple[UserId, ConversationId], tuple[tuple[str, str, str], ...]] = field(default_factory=dict)
    titles: Mapping[tuple[UserId, ConversationId], str | None] = field(default_factory=dict)
    remembered: tuple[Remembered, ...] = ()
    store_bytes: bytes = b""
    left: Mapping[str, int] = field(default_factory=dict)
    grace_ms: int = 5_000
    context: int | None = None
    template: ChatTokenizer | None = None
    waits: Waits | None = None

    @property
    def requests_to_generate(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.place.topic.startswith(GENERATE))

    def of(self, topic: str) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.place.topic == topic)


def read_entries(log: Log, decoder: Decoder, topics: tuple[str, ...] = CHECKED_TOPICS) -> tuple[Entry, ...]:
    """Everything that lies in `topics` now, partition by partition; tombstones, unknown types and what a writer of
    `messages` sent again are left out.
    """
    found: list[Entry] = []
    for topic in topics:
        for partition in range(log.partitions(topic)):
            records = read_records(log, Place(topic, partition))
            found += _decoded(_once(records) if topic == MESSAGES else records, decoder)
    return tuple(found)


def read_records(log: Log, place: Place) -> list[Record]:
    """All that lies in one partition now."""
    reader = log.reader(committed_only=True)
    end = reader.end(place)
    reader.add(place, reader.begin(place))
    found: list[Record] = []
    while reader.position(place) < end:
        found += reader.poll(BATCH, 0.2)
    reader.close()
    return found


def _once(records: list[Record]) -> list[Record]:
    """Each writer's numbers grow: one that does not was sent before."""
    newest: dict[bytes, int] = {}
    found: list[Record] = []
    for record in records:
        writer, _, number = dict(record.headers).get("laneway-written", b"").rpartition(b"/")
        if not writer or int(number) > newest.get(writer, -1):
            found.append(record)
            newest[writer] = int(number or 0)
    return found


def _decoded(records: list[Record], decoder: Decoder) -> list[Entry]:
    found: list[Entry] = []
    for record in records:
        if record.value is None:
            continue
        try:
            event = decoder.decode(record.value)
        except UnknownType:
            continue
        found.append(Entry(record.place, record.offset, record.timestamp_ms, record.key, event))
    return found
