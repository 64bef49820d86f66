"""Intake: each user's messages, in log order, to accepted replies and generate requests.

A deterministic function of one partition of `messages`: what a conversation's history was, that time went by, that a
reply has ended, all come as records of that partition. State is one ConversationKept per conversation, kept until
ten idle minutes of log time have passed; then the store knows all that it knew; and what its users may use
(`allowances.py`). A message with a whole prompt has no history and waits for nobody; of its conversation only the
client key is kept, if it has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from schemas.events import (
    ClientKey,
    ConversationDeleted,
    ConversationRenamed,
    HistoryLoaded,
    MessagePosted,
    ReplySettled,
    Tick,
    Turn,
)
from schemas.ids import ConversationId, UserId
from schemas.kept_records import ConversationKept, ParkedMessage, WritersKept
from schemas.quota_records import LimitSet, PlansLoaded, UsageAsked
from schemas.reply_records import Rejected, Stopped
from streams.active import MOST_HELD_BYTES, Partition, forget_idle, later, lost
from streams.admission import MOST_KEYS, Answer, Model, admit, busy, evolve, parent_not_found, repeated
from streams.bounds import MOST_PARKED_BYTES, check_posted, check_size, newest_turns
from streams.branches import Elsewhere, is_unknown, was_said
from streams.stage import NOTHING, Decision, HistoryWanted, Message, Stage
from topics.catalog import INTAKE_STATE, MESSAGES
from topics.log import Place
from topics.outputs import Output, Routes

TICK_EVERY_S = 0.25
REPEATABLE = ("stopped", "failed", "shed")


class Intake(Stage):
    name = "intake"
    inputs = (MESSAGES,)
    changelog = INTAKE_STATE
    transactional = True

    def __init__(self, models: Mapping[str, Model], routes: Routes, room: int = MOST_HELD_BYTES) -> None:
        """`room`: the most bytes of turns that are held of a partition, beside those of conversations in progress."""
        self._models = models
        self._routes = routes
        self._room = room
        self._partitions: dict[Place, Partition] = {}
        self._next_tick = 0.0

    def apply(self, message: Message) -> Decision:
        check_size(message.size)
        partition = self._partitions[message.place]
        if partition.writers.is_repeat(message.written, message.at_ms):
            return NOTHING
        partition.begin(message.offset)
        forget_idle(partition, message.at_ms)
        decision = self._decided(partition, message)
        partition.make_room()
        return decision

    def _decided(self, partition: Partition, message: Message) -> Decision:
        match message.event:
            case MessagePosted() as posted:
                return self._posted(partition, posted, message.at_ms)
            case HistoryLoaded() as loaded:
                return self._loaded(partition, loaded, message.at_ms)
            case ReplySettled() as settled:
                partition.quotas.settle(settled, message.at_ms)
                return self._settled(partition, settled, message.at_ms)
            case ConversationRenamed() as renamed:
                return self._renamed(partition, renamed, message.at_ms)
            case ConversationDeleted() as deleted:
                return self._deleted(partition, deleted, message.at_ms)
            case PlansLoaded() | LimitSet() as changed:
                partition.quotas.change(changed, message.at_ms)
            case UsageAsked() as asked:
                told = partition.quotas.tell(asked, self._models, message.at_ms)
                return Decision(first=(self._routes.reply(asked.reply, told),))
            case Tick():
                waiting = [partition.kept[key] for key in sorted(partition.parked)]
                return _joined([self._answer(partition, kept, message.at_ms) for kept in waiting if not kept.loading])
        return NOTHING

    def refused(self, message: Message) -> Decision:
        if isinstance(message.event, MessagePosted) and self._routes.has(message.event.reply):
            rejected = Rejected("internal", "the message could not be decided; it is kept for inspection")
            return Decision(first=(self._routes.reply(message.event.reply, rejected),))
        return NOTHING

    def _posted(self, partition: Partition, posted: MessagePosted, now_ms: int) -> Decision:
        if not self._routes.has(posted.reply):
            raise ValueError(f"{posted.reply!r} names no reply of this cell")
        check_posted(posted)
        known = partition.kept.get((posted.user, posted.conversation))
        stored = not posted.messages
        kept = known or _unknown(posted, now_ms)
        if (answer := repeated(kept, posted)) is not None:
            partition.put(replace(kept, touched_ms=max(kept.touched_ms, now_ms)))
            return self._decision([answer])
        if not stored and not posted.client_key:
            return self._decision([self._alone(partition, kept, ParkedMessage(posted, later(kept, now_ms)))])
        if partition.waiting[posted.user] > MOST_PARKED_BYTES and (kept.loading or kept.dropped or kept.open_reply):
            return self._decision([Answer(posted, busy(kept))])  # its state would outgrow a record of the changelog
        since_ms = later(kept, now_ms)
        kept = replace(kept, touched_ms=since_ms, parked=(*kept.parked, ParkedMessage(posted, since_ms)))
        if not kept.loading:
            return self._answer(partition, kept, now_ms)
        partition.put(kept)
        return NOTHING

    def _loaded(self, partition: Partition, loaded: HistoryLoaded, now_ms: int) -> Decision:
        kept = partition.kept.get((loaded.user, loaded.conversation))
        if kept is None or not kept.loading or (kept.branch, kept.deleted_ms) != (loaded.leaf, loaded.deleted_ms):
            return NOTHING  # another question is on its way
        asked, kept = kept.leaf, replace(kept, loading=False, touched_ms=max(kept.touched_ms, now_ms))
        behind = not loaded.found and (loaded.leaf == asked or was_said(kept, loaded.leaf))
        if not loaded.available or behind:
            return self._unavailable(partition, kept)
        if not loaded.found:
            missing = [parked for parked in kept.parked if parked.message.parent == loaded.leaf]
            answers = [Answer(parked.message, parent_not_found(parked.message)) for parked in missing]
            kept = replace(kept, parked=tuple(parked for parked in kept.parked if parked not in missing))
            return _joined([self._decision(answers), self._answer(partition, kept, now_ms)])
        turns = self._fitting(loaded.turns)
        newest = loaded.leaf or (loaded.turns[-1].message if loaded.turns else None)
        kept = replace(
            kept,
            turns=turns,
            dropped=False,
            branch=newest,
            leaf=kept.leaf if loaded.leaf else newest,
            keys=_merged(loaded.keys, kept.keys),
            system=kept.system if kept.leaf else loaded.system,
        )
        return self._answer(partition, kept, now_ms)

    def _unavailable(self, partition: Partition, kept: ConversationKept) -> Decision:
        if is_unknown(kept):
            partition.forget(kept)
        else:
            partition.put(replace(kept, parked=()))
        refusal = Rejected("history_unavailable", "the conversation's history cannot be read now", 1_000)
        return self._decision([Answer(parked.message, refusal) for parked in kept.parked])

    def _settled(self, partition: Partition, settled: ReplySettled, now_ms: int) -> Decision:
        kept = partition.kept.get((settled.user, settled.conversation))
        if kept is None or kept.open_reply != settled.reply:
            return NOTHING
        if settled.turn is None and settled.state in REPEATABLE and not kept.parked:
            partition.forget(kept)  # its key may try again
            return NOTHING
        kept = replace(kept, open_reply=None, touched_ms=max(kept.touched_ms, now_ms))
        if settled.turn:
            leaf, turns = settled.turn.message, self._fitting((*kept.turns, settled.turn))
            kept = replace(kept, turns=turns, leaf=leaf, branch=leaf)
        return self._answer(partition, kept, now_ms)

    def _renamed(self, partition: Partition, renamed: ConversationRenamed, now_ms: int) -> Decision:
        kept = partition.kept.get((renamed.user, renamed.conversation))
        if kept and kept.deleted_ms and not (kept.keys or kept.parked):
            return NOTHING  # it is deleted, and nothing was said in it since
        at_ms = later(kept, now_ms) if kept else now_ms
        return Decision(then=(self._routes.conversation(replace(renamed, at_ms=at_ms)),))

    def _deleted(self, partition: Partition, deleted: ConversationDeleted, now_ms: int) -> Decision:
        """Forgets the conversation, whatever is still to come for it; what is said in it from now on is a new one."""
        user, conversation = deleted.user, deleted.conversation
        kept = partition.kept.get((user, conversation))
        at_ms = later(kept, now_ms) if kept else now_ms
        partition.put(ConversationKept(user, conversation, now_ms, False, (), (), None, (), at_ms))
        gone = Rejected("conversation_deleted", f"conversation {conversation!r} was deleted while this message waited")
        told = [self._routes.reply(parked.message.reply, gone) for parked in kept.parked] if kept else []
        if kept and kept.open_reply:
            told.append(self._routes.reply(kept.open_reply, Stopped("user")))
        return Decision(tuple(told), (self._routes.conversation(replace(deleted, at_ms=at_ms)),))

    def _fitting(self, turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
        """The newest turns, as many as any model's context could take."""
        return newest_turns(turns, max(model.tokenizer.context for model in self._models.values()))

    def _answer(self, partition: Partition, kept: ConversationKept, now_ms: int) -> Decision:
        """Answers the parked messages of a loaded conversation, in their order, as far as they can be."""
        if lost(kept, now_ms):
            kept = replace(kept, open_reply=None)
        answers: list[Answer] = []
        waiting: list[ParkedMessage] = []
        for n, parked in enumerate(kept.parked):
            answer = self._admitted(partition, kept, parked, now_ms)
            if isinstance(answer, Elsewhere):
                waiting += kept.parked[n:]
                kept = replace(kept, loading=True, branch=answer.leaf, turns=(), dropped=True)
                break
            if answer is None:
                waiting.append(parked)
            else:
                answers.append(answer)
                kept = evolve(kept, answer)
        partition.put(replace(kept, parked=tuple(waiting)))
        wanted = (_wanted(kept),) if kept.loading else ()
        return replace(self._decision(answers), wanted=wanted)

    def _admitted(
        self, partition: Partition, kept: ConversationKept, parked: ParkedMessage, now_ms: int
    ) -> Answer | Elsewhere | None:
        allowance = partition.quotas.of(parked.message.user, parked.message.plan)
        try:
            answer = admit(self._models, kept, parked, now_ms, allowance)
        except ValueError as error:  # a turn that no prompt can be made of: nobody is to wait behind it
            return Answer(parked.message, Rejected("internal", f"the conversation cannot be continued: {error}"))
        partition.quotas.put(answer.quota if isinstance(answer, Answer) else None)
        return answer

    def _alone(self, partition: Partition, kept: ConversationKept, parked: ParkedMessage) -> Answer:
        """The answer to a message that nothing was before and nothing will be after: no repeat of it can come."""
        answer = self._admitted(partition, kept, parked, parked.since_ms)
        assert isinstance(answer, Answer)
        return answer

    def _decision(self, answers: Iterable[Answer]) -> Decision:
        first: list[Output] = []
        then: list[Output] = []
        for answer in answers:
            first.append(self._routes.reply(answer.message.reply, answer.record))
            if answer.request:
                then.append(self._routes.generate(answer.request))
            if answer.turn:
                then.append(self._routes.turn(answer.turn))
        return Decision(tuple(first), tuple(then))

    def assigned(self, place: Place, committed: object) -> None:
        self._partitions[place] = Partition(self._room)

    def restore(self, place: Place, key: bytes, event: Any) -> None:
        if isinstance(event, ConversationKept):
            self._partitions[place].restore(event)
        elif isinstance(event, WritersKept):
            self._partitions[place].writers.restore(event)
        elif not self._partitions[place].quotas.restore(key.decode("utf-8", "replace"), event) and event is None:
            user, _, conversation = key.decode("utf-8", "replace").rpartition("/")
            self._partitions[place].drop((UserId(user), ConversationId(conversation)))

    def restored(self, place: Place) -> Decision:
        partition = self._partitions[place]
        partition.restored()
        loading = [kept for kept in partition.kept.values() if kept.loading]
        return Decision(wanted=tuple(map(_wanted, loading)))

    def revoked(self, place: Place) -> None:
        self._partitions.pop(place, None)

    def changes(self) -> Iterable[Output]:
        for place, partition in self._partitions.items():
            for user, conversation in sorted(partition.changed):
                yield self._routes.intake_state(user, conversation, partition.kept.get((user, conversation)))
            partition.changed.clear()
            yield from partition.quotas.changes(place.partition)
            yield from partition.writers.changes(place.partition)

    def ticks(self, now: float) -> Iterable[Output]:
        if now < self._next_tick:
            return
        self._next_tick = now + TICK_EVERY_S
        for place, partition in self._partitions.items():
            if partition.parked:
                yield Output(place, "", Tick())


def _joined(decisions: Iterable[Decision]) -> Decision:
    parts = list(decisions)
    first, then = tuple(o for d in parts for o in d.first), tuple(o for d in parts for o in d.then)
    return Decision(first, then, wanted=tuple(w for d in parts for w in d.wanted))


def _unknown(posted: MessagePosted, now_ms: int) -> ConversationKept:
    """A conversation that nothing is known of; of one that is not stored there is nothing to know."""
    stored = not posted.messages
    return ConversationKept(posted.user, posted.conversation, now_ms - 1, False, (), (), None, (), dropped=stored)


def _wanted(kept: ConversationKept) -> HistoryWanted:
    return HistoryWanted(kept.user, kept.conversation, kept.branch, kept.deleted_ms)


def _merged(older: Iterable[ClientKey], newer: Iterable[ClientKey]) -> tuple[ClientKey, ...]:
    """The keys of the store and those that are known here, each once, in the order of their use."""
    return tuple({key.key: key for key in (*older, *newer)}.values())[-MOST_KEYS:]
