"""One replica: requests from its lanes to numbered tokens in the reply log.

Each pass takes what it was told, starts what there is room for, computes one token of everything that runs, and writes
all of it in one batch. A reply whose record could not be delivered is dropped: nothing more is written under that
attempt, and the heartbeats name it until the supervisor has fenced it.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from engine.detokenizer import Detokenizer
from engine.lanes import Lanes, Undecodable
from engine.runner import Runner
from engine.sequence import Sequence
from engine.transcript import Advance, Token, Transcript
from schemas.events import (
    AbortReply,
    AttemptDropped,
    DeadLettered,
    DrainRequested,
    GenerateAssigned,
    Origin,
    pack_ids,
    unpack_ids,
)
from schemas.ids import Incarnation, ReplyId
from schemas.reply import Record
from schemas.reply_records import Failed, Finished, Started, Tokens
from schemas.tokenizer import ChatTokenizer
from topics.catalog import DEAD_LETTERS, TIERS
from topics.log import Place, Producer
from topics.outputs import Encoder, Output, Routes

IDLE_POLL_S = 0.02
STEPS_REMEMBERED = 200


@dataclass(frozen=True)
class Identity:
    """Which replica this is: a slot of a pool, and the incarnation that is new at every start."""

    pool: str
    slot: int
    incarnation: Incarnation

    @property
    def name(self) -> str:
        return f"{self.pool}/{self.slot}"


@dataclass(frozen=True)
class Outbox:
    """Writes events to the log."""

    producer: Producer
    encoder: Encoder
    routes: Routes


@dataclass(eq=False, slots=True)
class Job:
    """A sequence that runs, with its transcript and the number of the next token to be written."""

    assigned: GenerateAssigned
    sequence: Sequence
    transcript: Transcript
    next: int
    lost: bool = False


@dataclass(frozen=True)
class Load:
    """What a heartbeat says of a replica. `step` counts steps, so that a stuck one is seen."""

    running: int = 0
    waiting: int = 0
    step: int = 0
    p99_step_ms: float = 0.0
    lanes: tuple[tuple[str, int], ...] = ()
    dropped: tuple[AttemptDropped, ...] = ()


@dataclass
class _Clock:
    """Durations of the last steps, in milliseconds."""

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_REMEMBERED))
    steps: int = 0

    def took(self, seconds: float) -> None:
        self.recent.append(seconds * 1000)
        self.steps += 1

    @property
    def p99_ms(self) -> float:
        ordered = sorted(self.recent)
        return ordered[len(ordered) * 99 // 100] if ordered else 0.0


class Replica:
    """Driven by one thread. `load` is replaced, never changed, so another thread may read it."""

    def __init__(
        self, identity: Identity, runner: Runner, tokenizer: ChatTokenizer, lanes: Lanes, outbox: Outbox, capacity: int
    ) -> None:
        self.identity, self.capacity = identity, capacity
        self.load = Load()
        self.draining = False
        self._runner, self._tokenizer, self._lanes, self._outbox = runner, tokenizer, lanes, outbox
        self._waiting: dict[str, deque[GenerateAssigned]] = {tier: deque() for tier in TIERS}
        self._running: list[Job] = []
        self._dropped: dict[tuple[ReplyId, int], None] = {}
        self._clock = _Clock()

    @property
    def fingerprint(self) -> str:
        return self._runner.fingerprint

    @property
    def idle(self) -> bool:
        return not self._running

    def step(self) -> None:
        """One pass; waits a little for something to do when nothing runs."""
        for event in self._lanes.take(0.0 if self._running else IDLE_POLL_S):
            self._told(event)
        self._start_waiting()
        if self._running:
            self._compute()
        self._outbox.producer.poll()
        self.note()

    def drop_all(self) -> None:
        """Gives up everything, for the supervisor to continue elsewhere."""
        for job in list(self._running):
            self._drop(job)
        self._drop_waiting()
        self.note()

    def _told(self, event: object) -> None:
        match event:
            case GenerateAssigned() if event.incarnation == self.identity.incarnation:
                self._queue(event)
            case AbortReply() if event.incarnation == self.identity.incarnation:
                self._abort(event)
            case DrainRequested() if event.incarnation == self.identity.incarnation:
                self.draining = True
            case Undecodable():
                self._put_aside(event)

    def _queue(self, assigned: GenerateAssigned) -> None:
        """A second request for an attempt that is here already, from a replay, would compute the same again."""
        attempt = (assigned.request.reply, assigned.request.attempt)
        here = [(job.sequence.reply, job.sequence.attempt) for job in self._running]
        here += [(a.request.reply, a.request.attempt) for lane in self._waiting.values() for a in lane]
        if attempt not in here:
            self._waiting[assigned.request.tier].append(assigned)

    def _abort(self, abort: AbortReply) -> None:
        self._dropped.pop((abort.reply, abort.attempt), None)
        for job in [j for j in self._running if (j.sequence.reply, j.sequence.attempt) == (abort.reply, abort.attempt)]:
            self._end(job)
        for lane in self._waiting.values():
            kept = [a for a in lane if (a.request.reply, a.request.attempt) != (abort.reply, abort.attempt)]
            lane.clear()
            lane.extend(kept)

    def _start_waiting(self) -> None:
        if self.draining:
            self._drop_waiting()
        for tier in TIERS:
            lane = self._waiting[tier]
            while lane and len(self._running) < self.capacity:
                assigned = lane.popleft()
                try:
                    self._start(assigned)
                except ValueError as error:
                    self._refuse(assigned, error)

    def _start(self, assigned: GenerateAssigned) -> None:
        request = assigned.request
        sequence = Sequence(
            request.reply, request.attempt, unpack_ids(request.prompt), request.sampling, unpack_ids(request.accepted)
        )
        if sequence.max_tokens > self._tokenizer.context:
            self._write(request.reply, Failed("context_length_exceeded"))
            return
        detokenizer = Detokenizer(self._tokenizer.piece, request.sampling.stop)
        transcript = Transcript(sequence, detokenizer, self._tokenizer.eos_ids)
        job = Job(assigned, sequence, transcript, len(sequence.accepted) + 1)
        me = self.identity
        started = Started(request.attempt, me.name, me.incarnation, self.fingerprint, assigned.origin, 0)
        self._write(request.reply, started, job)
        self._running.append(job)
        if transcript.finish_reason:
            self._advance(job, Advance((), transcript.finish_reason))

    def _compute(self) -> None:
        jobs = list(self._running)
        began = time.monotonic()
        sampled = self._runner.step([job.sequence for job in jobs])
        self._clock.took(time.monotonic() - began)
        for job, token_id in zip(jobs, sampled, strict=True):
            if job.lost:
                self._drop(job)
            else:
                self._advance(job, job.transcript.take(token_id))

    def _advance(self, job: Job, advance: Advance) -> None:
        reply, attempt, me = job.sequence.reply, job.sequence.attempt, self.identity.incarnation
        if advance.tokens:
            self._write(reply, _tokens(attempt, me, job.next, advance.tokens), job)
            job.next += len(advance.tokens)
        if advance.finish_reason:
            self._write(reply, Finished(attempt, me, advance.finish_reason, job.next - 1), job)
            self._end(job)

    def _write(self, reply: ReplyId, record: Record, job: Job | None = None) -> None:
        def delivered(error: Exception | None) -> None:
            if error is not None and job is not None:
                job.lost = True
                self._dropped[job.sequence.reply, job.sequence.attempt] = None

        append = self._outbox.encoder.append(self._outbox.routes.reply(reply, record))
        self._outbox.producer.send(append, delivered)

    def _drop_waiting(self) -> None:
        for lane in self._waiting.values():
            self._dropped |= {(a.request.reply, a.request.attempt): None for a in lane}
            lane.clear()

    def _drop(self, job: Job) -> None:
        self._dropped[job.sequence.reply, job.sequence.attempt] = None
        self._end(job)

    def _end(self, job: Job) -> None:
        self._running.remove(job)
        self._runner.release(job.sequence)

    def _put_aside(self, bad: Undecodable) -> None:
        """The dead letter and the reply's end, since nobody else will ever read this record."""
        record, place = bad.record, bad.record.place
        self._bury(Origin(place.topic, place.partition, record.offset), bad.error, record.key, record.value)
        reply = ReplyId((record.key or b"").decode("ascii", "replace"))
        if self._outbox.routes.has(reply):
            self._write(reply, Failed("internal"))

    def _refuse(self, assigned: GenerateAssigned, error: ValueError) -> None:
        """A request that no sequence can be made of; the letter leaves its bytes where they lie."""
        reply = assigned.request.reply
        self._bury(assigned.origin, f"could not be started: {error!r}", reply.encode(), None)
        if self._outbox.routes.has(reply):
            self._write(reply, Failed("internal"))

    def _bury(self, origin: Origin, error: str, key: bytes | None, value: bytes | None) -> None:
        letter = DeadLettered(origin, f"replica {self.identity.name}", error, key, value)
        self._outbox.producer.send(self._outbox.encoder.append(Output(Place(DEAD_LETTERS, 0), origin.topic, letter)))

    def note(self) -> None:
        """Makes `load` what it is now."""
        self.load = Load(
            running=len(self._running),
            waiting=sum(len(lane) for lane in self._waiting.values()),
            step=self._clock.steps,
            p99_step_ms=self._clock.p99_ms,
            lanes=tuple((position.tier, position.offset) for position in self._lanes.positions()),
            dropped=tuple(AttemptDropped(reply, attempt) for reply, attempt in self._dropped),
        )


def _tokens(attempt: int, incarnation: Incarnation, first: int, tokens: tuple[Token, ...]) -> Tokens:
    ids = pack_ids(token.id for token in tokens)
    return Tokens(attempt, incarnation, first, ids, tuple(token.text for token in tokens))
