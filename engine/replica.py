"""One replica: requests from its lanes to numbered tokens in the reply log.

Each pass takes what it was told, lets the engine take a step, and writes what became of each reply in one batch. A
reply whose record could not be delivered, or that was preempted too often, is dropped: nothing more is written under
that attempt, and the heartbeats name it until the supervisor has fenced it.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace

from engine.detokenizer import Detokenizer
from engine.dropped import Dropped
from engine.engine import Change, Engine, Totals
from engine.errors import NeverFits
from engine.lanes import Lanes, Undecodable
from engine.load import Load, Requests
from engine.runner import Sampled
from engine.sequence import Sequence
from engine.transcript import Advance, Token, Transcript
from schemas.events import (
    AbortReply,
    DeadLettered,
    DrainRequested,
    GenerateAssigned,
    Origin,
    pack_ids,
    unpack_ids,
)
from schemas.ids import Incarnation, ReplyId
from schemas.reply import Record
from schemas.reply_records import Failed, Finished, LikelyToken, Preempted, Started, TokenLogprob, Tokens
from schemas.tokenizer import ChatTokenizer
from topics.catalog import TIERS, generate_topic
from topics.errors import DeliveryFailed
from topics.log import Producer
from topics.outputs import Encoder, Routes, dead_letter

IDLE_POLL_S = 0.2
HAND_OVER_S = 2.0
LONGEST_TOPIC = 249


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
    """A sequence in the engine, with its transcript and the number of the next token to be written."""

    assigned: GenerateAssigned
    sequence: Sequence
    transcript: Transcript
    next: int
    started: bool = False
    lost: bool = False


class Replica:
    """Driven by one thread. `load`, `totals` and `requests` are replaced, never changed, so other threads may read.

    `supervisor_beats`, how many were read, is set by the thread that reads them.
    """

    def __init__(
        self, identity: Identity, engine: Engine, tokenizer: ChatTokenizer, lanes: Lanes, outbox: Outbox
    ) -> None:
        self.identity, self.capacity, self.fingerprint = identity, engine.max_running, engine.fingerprint
        self.load, self.requests = Load(), Requests()
        self.supervisor_beats = 0
        self.draining = False
        self._engine, self._tokenizer, self._lanes, self._outbox = engine, tokenizer, lanes, outbox
        self._jobs: dict[tuple[ReplyId, int], Job] = {}
        self._dropped = Dropped()
        self._ends: Counter[str] = Counter()

    @property
    def totals(self) -> Totals:
        return self._engine.totals

    @property
    def idle(self) -> bool:
        return not self._jobs

    def step(self) -> None:
        """One pass; waits a little for something to do when nothing runs."""
        events = list(self._lanes.take(0.0 if self._engine.has_work else IDLE_POLL_S))
        for event in events:
            self._told(event)
        if events:  # so that a step that never ends is seen to stand still with something to do
            self.note()
        if self.draining:
            self._drop(*(job for job in self._jobs.values() if not job.started))
        if self._engine.has_work:
            for sequence, outcome in self._engine.step():
                if job := self._jobs.get((sequence.reply, sequence.attempt)):
                    self._became(job, outcome)
        self._outbox.producer.poll()
        self.note()

    def drain(self) -> None:
        """Begins nothing any more, and says so."""
        self.draining = True
        self.note()

    def drop_all(self) -> None:
        """Gives up everything, for the supervisor to continue elsewhere."""
        self._drop(*self._jobs.values())
        self.note()

    def hand_over(self) -> None:
        """Gives up everything, once it is known of each record that was written whether the log has it."""
        with suppress(DeliveryFailed):  # what was lost is given up as its failure is told
            self._outbox.producer.flush(HAND_OVER_S)
        self.drop_all()

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

    def _abort(self, command: AbortReply) -> None:
        job = self._jobs.get((command.reply, command.attempt))
        self._dropped.abort(command.reply, command.attempt, self.supervisor_beats, was_here=job is not None)
        if job is not None:
            self._end(job, "aborted")

    def _queue(self, assigned: GenerateAssigned) -> None:
        """A second request for an attempt that is here already, from a replay, would compute the same again."""
        reply, attempt = assigned.request.reply, assigned.request.attempt
        if (reply, attempt) in self._jobs:
            return
        try:
            job = self._job(assigned)
            self._check_context(job.sequence)
            if not job.transcript.finish_reason:
                self._engine.add(job.sequence)
        except NeverFits as error:
            self._ends["refused"] += 1
            self._write(reply, Failed(f"context_length_exceeded: {error}"))
        except ValueError as error:
            self._refuse(assigned, error)
        else:
            self._jobs[reply, attempt] = job
            if job.transcript.finish_reason and not self.draining:
                self._start(job)
                self._advance(job, Advance((), job.transcript.finish_reason))

    def _job(self, assigned: GenerateAssigned) -> Job:
        """Raises ValueError for a request that cannot be computed, and would take the whole batch with it."""
        request = assigned.request
        sequence = Sequence(
            request.reply,
            request.attempt,
            unpack_ids(request.prompt),
            request.sampling,
            unpack_ids(request.accepted),
            request.tier,
            request.account,
        )
        if not self._outbox.routes.has(sequence.reply):
            raise ValueError(f"reply {sequence.reply!r} is none of this cell")
        if assigned.origin.topic not in (generate_topic(self.identity.pool, tier) for tier in TIERS):
            raise ValueError(
                f"a request from {assigned.origin.topic[:LONGEST_TOPIC]!r}, which is no backlog of this pool"
            )
        if max(sequence.prompt) >= self._tokenizer.vocabulary:
            raise ValueError(f"token {max(sequence.prompt)}, where the vocabulary has {self._tokenizer.vocabulary}")
        detokenizer = Detokenizer(self._tokenizer.piece, request.sampling.stop)
        transcript = Transcript(sequence, detokenizer, self._tokenizer.eos_ids)
        return Job(assigned, sequence, transcript, len(sequence.accepted) + 1)

    def _check_context(self, sequence: Sequence) -> None:
        if sequence.max_tokens > self._tokenizer.context:
            raise NeverFits(
                f"a prompt of {len(sequence.prompt)} and a reply of {sequence.sampling.max_tokens} tokens are more than"
                f" the model's {self._tokenizer.context}"
            )

    def _became(self, job: Job, outcome: Change | Sampled) -> None:
        """Writes what a step made of a job. One that was lost or given up is named, not written of."""
        if job.lost or outcome is Change.GIVEN_UP:
            self._drop(job)
        elif outcome is Change.ADMITTED:
            self._start(job)
        elif outcome is Change.PREEMPTED:
            self._write(job.sequence.reply, Preempted(job.sequence.attempt, self.identity.incarnation), job)
        elif isinstance(outcome, Sampled):
            self._advance(job, job.transcript.take(outcome))

    def _start(self, job: Job) -> None:
        me, sequence, origin = self.identity, job.sequence, job.assigned.origin
        cached = sequence.num_cached_tokens
        started = Started(sequence.attempt, me.name, me.incarnation, self.fingerprint, origin, cached)
        self._write(sequence.reply, started, job)
        job.started = True

    def _advance(self, job: Job, advance: Advance) -> None:
        reply, attempt, me = job.sequence.reply, job.sequence.attempt, self.identity.incarnation
        if advance.tokens:
            ids, texts = pack_ids(token.id for token in advance.tokens), tuple(token.text for token in advance.tokens)
            logprobs = tuple(likely for token in advance.tokens if (likely := self._likely(token)))
            self._write(reply, Tokens(attempt, me, job.next, ids, texts, logprobs), job)
            job.next += len(advance.tokens)
        if advance.finish_reason:
            self._write(reply, Finished(attempt, me, advance.finish_reason, job.next - 1), job)
            self._end(job, "stopped" if advance.finish_reason == "stop" else "full")

    def _likely(self, token: Token) -> TokenLogprob | None:
        if token.logprobs is None:
            return None
        piece, chosen = self._tokenizer.piece, token.logprobs.chosen
        top = tuple(LikelyToken(piece(token_id), value) for token_id, value in token.logprobs.top)
        return TokenLogprob(piece(token.id), chosen, top)

    def _write(self, reply: ReplyId, record: Record, job: Job | None = None) -> None:
        def delivered(error: Exception | None) -> None:
            if error is not None and job is not None:
                job.lost = True
                self._dropped.give_up(job.sequence.reply, job.sequence.attempt, self.supervisor_beats)

        append = self._outbox.encoder.append(self._outbox.routes.reply(reply, record))
        self._outbox.producer.send(append, delivered)

    def _drop(self, *jobs: Job) -> None:
        """Names them in the heartbeats until the supervisor has fenced them."""
        for job in jobs:
            self._dropped.give_up(job.sequence.reply, job.sequence.attempt, self.supervisor_beats)
            self._end(job, "dropped")

    def _end(self, job: Job, how: str) -> None:
        self._ends[how] += 1
        self._jobs.pop((job.sequence.reply, job.sequence.attempt), None)
        self._engine.finish(job.sequence)

    def _put_aside(self, bad: Undecodable) -> None:
        """The dead letter and the reply's end, since nobody else will ever read this record."""
        self._ends["refused"] += 1
        record, place = bad.record, bad.record.place
        self._bury(Origin(place.topic, place.partition, record.offset), bad.error, record.key, record.value)
        reply = ReplyId((record.key or b"").decode("ascii", "replace"))
        if self._outbox.routes.has(reply):
            self._write(reply, Failed("internal"))

    def _refuse(self, assigned: GenerateAssigned, error: ValueError) -> None:
        """A request that no sequence can be made of; the letter leaves its bytes where they lie."""
        self._ends["refused"] += 1
        reply = assigned.request.reply
        origin = replace(assigned.origin, topic=assigned.origin.topic[:LONGEST_TOPIC])
        self._bury(origin, f"could not be started: {error!r}", reply.encode(), None)
        if self._outbox.routes.has(reply):
            self._write(reply, Failed("internal"))

    def _bury(self, origin: Origin, error: str, key: bytes | None, value: bytes | None) -> None:
        letter = DeadLettered(origin, f"replica {self.identity.name}", error, key, value)
        self._outbox.producer.send(self._outbox.encoder.append(dead_letter(letter)))

    def note(self) -> None:
        """Makes `load` and `requests` what they are now."""
        self.load = Load(
            running=self._engine.num_running,
            waiting=self._engine.num_waiting,
            free_blocks=self._engine.free_blocks,
            step=self._engine.steps,
            p99_step_ms=self._engine.p99_step_ms,
            lanes=tuple((position.tier, position.offset) for position in self._lanes.positions()),
            dropped=self._dropped.named(self.supervisor_beats),
            draining=self.draining,
        )
        self.requests = Requests(**self._ends)
