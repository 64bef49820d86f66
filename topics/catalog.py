"""Every topic of a cell, as data: name, key, records, partitions, retention, and one line of why.

`topics/admin.py` creates and compares them, the README's table is made from them, and producers route by them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas import events as e
from schemas import kept_records as k
from schemas import quota_records as q
from schemas import reply_records as r

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

LONGEST_DEADLINE_MS = 30 * MINUTE
RESUME_WINDOW_MS = 2 * LONGEST_DEADLINE_MS

# Topics that hold whole histories or other records' bytes; every other one keeps Kafka's own limit of 1 MB. In a lane a
# request has some words around it, and must fit with them.
LARGEST_RECORD = 8 * 1024 * 1024
USUAL_RECORD = 1_048_588
LARGEST_REQUEST = USUAL_RECORD - 4_096
LARGE = {"max.message.bytes": str(LARGEST_RECORD)}
# Changelogs hold what users have said: what has been replaced, by less or by nothing, is cleaned away in an hour.
FORGETS = {"max.compaction.lag.ms": str(HOUR)}

TIERS = ("resume", "paid", "free", "background")

MESSAGES = "messages"
REPLIES = "replies"
REPLICAS = "replicas"
EDGES = "edges"
TURNS = "turns"
USAGE = "usage"
INTAKE_STATE = "intake-state"
SUPERVISOR_STATE = "supervisor-state"
SCHEMAS = "schemas"
DEAD_LETTERS = "dead-letters"


@dataclass(frozen=True)
class Sizes:
    """What an installation chooses once: partitions of keyed topics never change afterwards."""

    pools: tuple[str, ...] = ("main",)
    slots: int = 32
    users: int = 16
    replies: int = 16


@dataclass(frozen=True)
class Topic:
    """One topic. `retention_ms` None keeps for ever (compacted); `keyed` forbids another partition count."""

    name: str
    key: str
    events: tuple[type, ...]
    partitions: int
    retention_ms: int | None
    why: str
    cleanup: str = "delete"
    keyed: bool = True
    segment_ms: int = 10 * MINUTE
    confluent: bool = False
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def largest_record(self) -> int:
        """Bytes that a record may have, with all that Kafka puts around it."""
        return int(self.settings.get("max.message.bytes", USUAL_RECORD))

    def config(self) -> dict[str, str]:
        """The topic settings as Kafka names them."""
        return {
            "cleanup.policy": self.cleanup,
            "retention.ms": str(-1 if self.retention_ms is None else self.retention_ms),
            "segment.ms": str(self.segment_ms),
            "message.timestamp.type": "LogAppendTime",
            **self.settings,
        }


def generate_topic(pool: str, tier: str) -> str:
    return f"generate.{pool}.{tier}"


def lane_topic(pool: str, tier: str) -> str:
    return f"lanes.{pool}.{tier}"


def commands_topic(pool: str) -> str:
    return f"commands.{pool}"


REPLY_RECORDS = (
    r.Accepted,
    r.Rejected,
    r.Redirected,
    r.UsageTold,
    r.Dispatched,
    r.Started,
    r.Tokens,
    r.Preempted,
    r.AttemptOpened,
    r.Cleared,
    r.Flagged,
    r.Finished,
    r.Stopped,
    r.Shed,
    r.Failed,
    r.ListenerAttached,
    r.ListenerDetached,
)


def catalog(sizes: Sizes) -> tuple[Topic, ...]:
    """All topics of a cell of these sizes."""
    of_pools = [topic for pool in sizes.pools for topic in _of_pool(pool, sizes)]
    return (*_of_chats(sizes), *of_pools, *_of_results(sizes), *_of_heartbeats(), *_of_the_cell(sizes))


def _of_chats(sizes: Sizes) -> tuple[Topic, ...]:
    """What is said: messages in, replies out."""
    return (
        Topic(
            MESSAGES,
            "user",
            (
                e.MessagePosted,
                e.ConversationRenamed,
                e.ConversationDeleted,
                e.ReplySettled,
                e.HistoryLoaded,
                e.Tick,
                q.PlansLoaded,
                q.LimitSet,
                q.UsageAsked,
            ),
            sizes.users,
            7 * DAY,
            "all that intake decides from, in one order per user",
            settings=LARGE,
        ),
        Topic(
            REPLIES,
            "reply/writer/sequence, partition from the reply id",
            REPLY_RECORDS,
            sizes.replies,
            RESUME_WINDOW_MS,
            "the reply log: every token, numbered; compacted only so that tombstones erase",
            cleanup="compact,delete",
            settings={"min.compaction.lag.ms": str(RESUME_WINDOW_MS)},
        ),
    )


def _of_results(sizes: Sizes) -> tuple[Topic, ...]:
    """What a reply leaves behind."""
    return (
        Topic(
            TURNS,
            "user/conversation/message, partition by user",
            (e.TurnSaved, e.ConversationRenamed, e.ConversationDeleted),
            sizes.users,
            30 * DAY,
            "conversations as they grow; the store is built from it",
            settings=LARGE,
            segment_ms=HOUR,
            confluent=True,
        ),
        Topic(
            USAGE,
            "reply, partition by user",
            (e.UsageRecorded,),
            sizes.users,
            30 * DAY,
            "exactly one record per accepted reply: what bills and budgets read",
            segment_ms=HOUR,
            confluent=True,
        ),
    )


def _of_heartbeats() -> tuple[Topic, ...]:
    """Who lives."""
    return (
        Topic(
            REPLICAS,
            "one partition",
            (e.ReplicaBeat, e.SupervisorBeat),
            1,
            10 * MINUTE,
            "heartbeats of replicas, and the supervisor's own clock beside them",
            segment_ms=MINUTE,
        ),
        Topic(
            EDGES,
            "one partition",
            (e.EdgeBeat, e.SupervisorBeat),
            1,
            10 * MINUTE,
            "heartbeats of edges, and the supervisor's own clock beside them",
            segment_ms=MINUTE,
        ),
    )


def _of_the_cell(sizes: Sizes) -> tuple[Topic, ...]:
    """What keeps a cell running."""
    return (
        Topic(
            INTAKE_STATE,
            "user/conversation or user/:quota, partition as messages",
            (k.ConversationKept, q.QuotaKept, q.PlansLoaded, k.WritersKept),
            sizes.users,
            None,
            "intake's changelog",
            settings=LARGE | FORGETS,
            cleanup="compact",
        ),
        Topic(
            SUPERVISOR_STATE,
            "reply, partition as replies",
            (k.ReplyKept,),
            sizes.replies,
            None,
            "the supervisor's snapshots of the replies that are open",
            settings=LARGE | FORGETS,
            cleanup="compact",
        ),
        Topic(
            SCHEMAS,
            "fingerprint",
            (e.SchemaPublished,),
            1,
            None,
            "schemas, published by a writer before it uses them",
            cleanup="compact",
        ),
        Topic(
            DEAD_LETTERS,
            "source topic",
            (e.DeadLettered,),
            1,
            7 * DAY,
            "records that a stage could not decode or decide",
            settings=LARGE,
            keyed=False,
        ),
    )


def _of_pool(pool: str, sizes: Sizes) -> list[Topic]:
    return [
        *(
            Topic(
                generate_topic(pool, tier),
                "reply",
                (e.GenerateRequested,),
                1,
                RESUME_WINDOW_MS,
                f"the backlog of tier {tier}, in strict order",
            )
            for tier in TIERS
        ),
        *(
            Topic(
                lane_topic(pool, tier),
                "replica slot, explicit partition",
                (e.GenerateAssigned,),
                sizes.slots,
                RESUME_WINDOW_MS,
                f"what the router has given to each replica of tier {tier}",
            )
            for tier in TIERS
        ),
        Topic(
            commands_topic(pool),
            "replica slot, explicit partition",
            (e.AbortReply, e.DrainRequested),
            sizes.slots,
            RESUME_WINDOW_MS,
            "what a replica is told beside its lanes",
        ),
    ]
