"""What a run has left, for the checker: the log, what clients asked and were sent, and what is still held by whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from schemas.events import MessagePosted, SupervisorBeat
from schemas.ids import ConversationId, UserId
from schemas.kept_records import ConversationKept
from schemas.reply_records import Accepted
from streams.supervisor import CANCEL_AFTER_S
from tests.checker.history import Asked, Entry, History, Remembered, Undisturbed, Waits, read_entries, read_records
from tests.checker.rules import asked
from tests.simulation.cell import ReplicaProcess, StageProcess
from tests.simulation.clients import Ask, Client
from tests.simulation.edge import EdgeProcess
from tests.simulation.surroundings import CODEC, Surroundings
from tests.simulation.undisturbed import undisturbed
from topics.catalog import INTAKE_STATE, REPLICAS
from topics.log import Place
from topics.schemas import Decoder

SILENT_MS = 2_500
GRACE_MS = 12_000


def history_of(around: Surroundings, clients: Sequence[Client], healed_ms: int) -> History:
    asks = {client.ask.name: client.ask for client in clients}
    entries = read_entries(around.log, Decoder(around.log, CODEC))
    conversations = sorted({(UserId(ask.user), ConversationId(ask.conversation)) for ask in asks.values()})
    lines = {key: around.store.inner.conversation(*key) for key in conversations}
    return History(
        entries=entries,
        streams=tuple(stream for client in clients for stream in client.streams()),
        requests=tuple(request for client in clients for request in client.requests()),
        undisturbed=_undisturbed(around, asks.values(), entries) if around.sizes.alike else {},
        stored={key: _stored(around, *key) for key in conversations},
        titles={key: line.title if line else None for key, line in lines.items()},
        remembered=_remembered(around),
        store_bytes=around.store.inner._connection.serialize(),
        left=_left(around, clients),
        grace_ms=GRACE_MS,
        context=around.tokenizer.context,
        template=around.tokenizer,
        waits=Waits(int(around.sizes.abandoned_s * 1_000), int(CANCEL_AFTER_S * 1_000), healed_ms),
    )


def _undisturbed(around: Surroundings, asks: Iterable[Ask], entries: Sequence[Entry]) -> dict[Asked, Undisturbed]:
    """Of those that asked for no max_tokens by what they were granted, unless they were twice, and differently."""
    keys = {e.event.reply: asked(e.event) for e in entries if isinstance(e.event, MessagePosted)}
    granted: defaultdict[Asked, set[int]] = defaultdict(set)
    for entry in entries:
        if isinstance(entry.event, Accepted) and entry.reply in keys:
            granted[keys[entry.reply]].add(entry.event.max_tokens)
    found = {}
    for ask in asks:
        most = {ask.max_tokens} if ask.max_tokens else granted[ask.key]
        if len(most) == 1:
            found[ask.key] = undisturbed(around.tokenizer, replace(ask, max_tokens=min(most)))
    return found


def _stored(around: Surroundings, user: UserId, conversation: ConversationId) -> tuple[tuple[str, str, str], ...]:
    saved = around.store.inner.messages(user, conversation, 1_000)
    return tuple((each.turn.role, each.turn.text, each.turn.status) for each in saved)


def _remembered(around: Surroundings) -> tuple[Remembered, ...]:
    """What intake's changelog holds when it is compacted."""
    newest: dict[bytes | None, ConversationKept | None] = {}
    for partition in range(around.log.partitions(INTAKE_STATE)):
        for record in read_records(around.log, Place(INTAKE_STATE, partition)):
            event = CODEC.decode(record.value) if record.value else None
            newest[record.key] = event if isinstance(event, ConversationKept) else None
    return tuple(
        Remembered(kept.user, kept.conversation, tuple(turn.message for turn in kept.turns), kept.leaf)
        for kept in newest.values()
        if kept
    )


def _left(around: Surroundings, clients: Sequence[Client]) -> dict[str, int]:
    left = {f"client {client.name} without an end": int(client.done is None) for client in clients}
    left["silent supervisors"] = int(around.world.now_ms - _last_supervisor_beat(around) > SILENT_MS)
    for role in around.roles.values():
        process = role.process
        if role.lost:
            continue
        if isinstance(process, ReplicaProcess):
            replica = process.replica
            left[f"sequences in {process.name}"] = len(replica._jobs) + len(replica._engine._sequences)
            left[f"blocks of {process.name}"] = process.blocks - replica._engine.free_blocks
            left[f"attempts that {process.name} names as dropped"] = len(replica.load.dropped)
        elif isinstance(process, EdgeProcess):
            left |= {f"{what} of {process.name}": count for what, count in process.held.items()}
        elif isinstance(process, StageProcess) and process.runner and process.alive:
            left[f"answers that {process.name} waits for"] = len(process.runner._answers)
    return left


def _last_supervisor_beat(around: Surroundings) -> int:
    for record in reversed(read_records(around.log, Place(REPLICAS, 0))):
        if isinstance(CODEC.decode(record.value), SupervisorBeat):
            return record.timestamp_ms
    return 0
