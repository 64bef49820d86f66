"""The runner: the only place that knows consume -> step -> outputs + state + offsets.

One `step`:
  1. takes records of the inputs and of the broadcast topics; a stage that begins anew says so first, by its position;
  2. decodes and decides each, to bytes; what cannot be is dead-lettered, and its reply is told;
  3. projects, durably; what cannot be is held, and nothing more is taken, until it can (`projecting.py`);
     sends the `first` outputs and waits until they are acknowledged, then sends `then`;
  4. sends the answers that the shell has found to what was `wanted`, and ticks;
  5. every COMMIT_EVERY_S: waits until all that was sent is acknowledged, then commits the state that has changed, the
     `committed` outputs and the positions: in one transaction beside the loop, or as plain offsets.

A crash replays everything since the last finished 5, from the state of that moment. After 1 or 2 nothing has left.
Within 3 a reply may have its Accepted and no request: the replay decides the same, writes Accepted again, which means
nothing, and then the request. After 3 or 4 the replay repeats all of it, and the protocol ignores repeats. Within 5
the transaction is whole or has never been. A process that has lost its partitions is fenced there, and stops.

It is synchronous and has no clock: a thread drives `step(now)` in production, the simulator in tests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import NoReturn

from streams.runtime.inbox import Inbox
from streams.runtime.projecting import Projecting
from streams.runtime.restoring import BATCH, POLL_S, restore
from streams.runtime.watch import Watch, apart
from streams.stage import NOTHING, Decision, Message, Stage, Wanted
from topics.errors import DeliveryFailed, Fenced, Unavailable
from topics.log import Append, Log, Place, Position, Record, Transactions
from topics.outputs import Encoder, Output
from topics.schemas import Decoder

# A stage that has a second reader looks at it after a wait that doubles from this on while both are silent.
SHARED_POLL_S = 0.02
ANSWER_POLL_S = 0.002
COMMIT_EVERY_S = 0.2
ACKNOWLEDGE_S = 30.0
COMMIT_PATIENCE_S = 60.0


def not_in_this_shell(asked: object) -> NoReturn:
    raise TypeError(f"this shell can neither perform nor project {asked!r}")


@dataclass(frozen=True)
class Shell:
    """What a stage needs of the world. `perform` answers what was wanted, in `beside`; `project` must be durable."""

    log: Log
    decoder: Decoder
    encoder: Encoder
    beside: Executor
    instance: str = "0"
    perform: Callable[[Wanted], Output] = not_in_this_shell
    project: Callable[[Sequence[Message]], None] = not_in_this_shell
    watch: Watch = field(default_factory=apart)


@dataclass(frozen=True, slots=True)
class Encoded:
    """A decision whose outputs are bytes already, so that sending them can fail by the log alone."""

    first: tuple[Append, ...] = ()
    then: tuple[Append, ...] = ()
    committed: tuple[Append, ...] = ()
    wanted: tuple[Wanted, ...] = ()
    projected: tuple[Message, ...] = ()


NO_OUTPUT = Encoded()


class Runner:
    """Runs one stage. `shell.beside` runs what must not hold up the loop; the simulator's runs it at once."""

    def __init__(self, stage: Stage, shell: Shell) -> None:
        self._stage, self._shell = stage, shell
        self._inbox = Inbox(stage, shell.decoder)
        self._next: dict[Place, int] = {}
        self._behind: dict[Place, int] = {}
        self._committed: dict[Place, Position] = {}
        self._with_offsets: list[Append] = []
        self._answers: list[Future[Output]] = []
        self._commit_running: Future[None] | None = None
        self._now = self._commit_at = self._commit_began = 0.0
        self._wait_s = SHARED_POLL_S
        self._lost: Collection[Place] = ()
        self._assigned = self._on_hold = self._begins_anew = False
        self._membership: object = None
        self._undelivered: Exception | None = None
        self._producer = shell.log.producer(ACKNOWLEDGE_S)
        self._transactions: Transactions | None = None
        if stage.transactional:
            self._transactions = shell.log.transactions(stage.name, stage.inputs[0], shell.instance)
        self._broadcast = shell.log.reader()
        for topic in stage.broadcast:
            self._catch_up_broadcast(Place(topic, 0))
        self._projecting: Projecting[Encoded] = Projecting(stage.name, shell.project)
        self._consumer = shell.log.group(stage.name, stage.inputs, self, shell.instance)

    def step(self, now: float) -> int:
        """One pass of the steps above; returns how many records it took. Raises an error of the log: stop then."""
        self._now = now
        records = self._take()
        if self._begins_anew and records:
            self._commit()  # a restart goes on from there, and not from where another store had all
            self._begins_anew = False
        self._shell.watch.metrics.took(records, self._stage.inputs)
        decided = [(record, self._decide(record)) for record in records]
        written = self._projected(decided)
        self._act([decision for _, decision in written if decision is not NO_OUTPUT])
        for record, _ in written:
            if record.place in self._next:
                self._next[record.place] = record.offset + 1
        self._tell_caught_up()
        self._send(map(self._shell.encoder.append, self._stage.ticks(now)))
        if now >= self._commit_at:
            self._commit_at = now + COMMIT_EVERY_S
            self._commit()
        return len(records)

    def close(self) -> None:
        """Commits what was done, leaves the group, closes every client."""
        self._consumer.close()
        self._producer.close()
        self._broadcast.close()
        if self._transactions:
            self._transactions.close()

    def _take(self) -> list[Record]:
        wait_s = ANSWER_POLL_S if self._answers else self._wait_s if self._stage.broadcast else COMMIT_EVERY_S
        records = self._consumer.poll(BATCH, min(wait_s, max(0.0, self._commit_at - self._now)))
        if self._lost:
            raise Fenced(f"{self._stage.name} lost {len(self._lost)} partitions to another process")
        if self._transactions:
            self._membership = self._consumer.membership()  # not from a rebalance or another thread: it could hang
        held = [record for record in records if record.place in self._next]  # the rest was given up within this poll
        # First what is known of replicas: a request is often sent because one is dead.
        taken = [*(self._broadcast.poll(BATCH, 0.0) if self._stage.broadcast else ()), *held]
        self._wait_s = SHARED_POLL_S if taken else min(2 * self._wait_s, COMMIT_EVERY_S)
        return taken

    def _decide(self, record: Record) -> Encoded:
        message, error = self._inbox.read(record)
        self._shell.watch.read(record, message)
        if message is not None:
            try:
                return self._encoded(self._stage.apply(message))
            except Exception as raised:  # noqa: BLE001  whatever a record does to a stage, the next one is read
                error = f"could not be decided: {raised!r}"
        if error is None or self._was_committed(record):
            return NO_OUTPUT
        bare = message or Message(record.place, record.offset, record.timestamp_ms, record.key, None)
        refused = self._stage.refused(bare)
        return self._encoded(Decision(first=refused.first + self._inbox.dead_letter(record, error)))

    def _encoded(self, decision: Decision) -> Encoded:
        """Raises ValueError for a decision that no record can hold."""
        if decision is NOTHING:  # as for nearly every token
            return NO_OUTPUT
        first, then, committed = (
            tuple(map(self._shell.encoder.append, outputs))
            for outputs in (decision.first, decision.then, decision.committed)
        )
        return Encoded(first, then, committed, decision.wanted, decision.projected)

    def _was_committed(self, record: Record) -> bool:
        """A stage that folds again from before its position has put these bad records aside already."""
        position = self._committed.get(record.place)
        return position is not None and record.offset < position.offset

    def _projected(self, decided: list[tuple[Record, Encoded]]) -> list[tuple[Record, Encoded]]:
        """What is durable in the projection now; all of it, for a stage that projects nothing."""
        written = self._projecting.through(decided, self._now)
        if self._on_hold != self._projecting.holds:  # also since a rebalance took away what was held
            self._on_hold = self._projecting.holds
            self._consumer.hold(self._on_hold)
        self._shell.watch.metrics.held(self._projecting.why)
        return written

    def _act(self, decisions: Sequence[Encoded]) -> None:
        self._send(append for decision in decisions for append in decision.first)
        if any(decision.then for decision in decisions):
            self._producer.flush(ACKNOWLEDGE_S)
            self._send(append for decision in decisions for append in decision.then)
        for decision in decisions:
            self._with_offsets += decision.committed
            self._want(decision.wanted)
        asked, self._answers = self._answers, []
        for future in asked:
            if future.done():  # asked once: it may be done the next moment
                self._send((self._shell.encoder.append(future.result()),))
            else:
                self._answers.append(future)
        self._producer.poll()
        if self._undelivered:  # a commit would find out, but a stage whose position does not move commits nothing
            raise DeliveryFailed(f"{self._stage.name}: an output was not acknowledged: {self._undelivered}")

    def _want(self, asked: Iterable[Wanted]) -> None:
        for wanted in asked:
            self._answers.append(self._shell.beside.submit(self._shell.perform, wanted))

    def _send(self, appends: Iterable[Append]) -> None:
        for append in appends:
            self._producer.send(append, self._delivered)

    def _delivered(self, failure: Exception | None) -> None:
        self._undelivered = self._undelivered or failure

    def _commit(self) -> None:
        """Starts a commit unless one is under way; its error is raised by the next."""
        if self._commit_running is not None:
            if not self._commit_running.done():
                if self._now - self._commit_began > COMMIT_PATIENCE_S:
                    raise Unavailable(f"{self._stage.name}: a commit has not ended for {COMMIT_PATIENCE_S} s")
                return
            self._end_commit()
        if self._assigned:
            self._shell.watch.metrics.looked(self._stage, self._inbox, len(self._next))
        positions = self._uncommitted()
        if not positions or (self._transactions and self._membership is None):
            return
        self._producer.flush(ACKNOWLEDGE_S)
        if self._transactions is None:
            self._consumer.commit(positions)
        else:
            changes = map(self._shell.encoder.append, self._stage.changes())
            appends, self._with_offsets = [*changes, *self._with_offsets], []
            commit, self._commit_began = self._transactions.commit, self._now
            self._commit_running = self._shell.beside.submit(
                commit, appends, positions, self._membership, ACKNOWLEDGE_S
            )
        self._committed |= positions

    def _end_commit(self) -> None:
        """Waits for the commit under way. Raises what it raised, or Unavailable if it does not end."""
        if self._commit_running is not None:
            try:
                self._commit_running.result(COMMIT_PATIENCE_S)
            except TimeoutError:
                raise Unavailable(f"{self._stage.name}: a commit does not end") from None
            self._commit_running = None

    def _uncommitted(self) -> dict[Place, Position]:
        found = {place: self._stage.position(place, offset) for place, offset in self._next.items()}
        return {place: position for place, position in found.items() if self._committed.get(place) != position}

    def _catch_up_broadcast(self, place: Place) -> None:
        end = self._broadcast.end(place)
        self._broadcast.add(place, self._broadcast.begin(place))
        while self._broadcast.position(place) < end:
            self._act([self._decide(record) for record in self._broadcast.poll(BATCH, POLL_S)])

    def assigned(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Called by the group: restores each place and says where to read on."""
        committed = self._consumer.committed(places)
        starts: dict[Place, int] = {}
        for place in places:
            position = committed.get(place)
            start = self._stage.assigned(place, position)
            starts[place] = position.offset if start is None and position else start or 0
        if self._stage.changelog:
            restore(self._stage, self._stage.changelog, places, self._shell.log, self._inbox)
        for place in places:
            self._want(self._stage.restored(place).wanted)
            if self._stage.waits_to_catch_up:
                self._behind[place] = self._broadcast.end(place)
        if self._transactions is None:
            began = {place: self._stage.position(place, starts[place]) for place in committed}
            self._begins_anew |= began != committed
        self._next |= starts
        self._committed |= committed
        self._assigned = True
        return starts

    def _tell_caught_up(self) -> None:
        for place in [place for place, end in self._behind.items() if self._next[place] >= end]:
            del self._behind[place]
            self._stage.caught_up(place)

    def revoked(self, places: Collection[Place]) -> None:
        """Called by the group: commits, for the last time, and forgets."""
        self._end_commit()
        self._commit()
        self._end_commit()
        self._forget(places)

    def lost(self, places: Collection[Place]) -> None:
        """Called by the group: the places are another's already."""
        self._lost = places
        self._forget(places)

    def _forget(self, places: Collection[Place]) -> None:
        self._projecting.forget(places)
        for place in places:
            self._next.pop(place, None)
            self._committed.pop(place, None)
            self._behind.pop(place, None)
            self._stage.revoked(place)
