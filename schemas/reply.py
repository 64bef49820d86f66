"""The reply protocol: what a reply's records mean, read in log order. Every reader folds with this file.

In: (offset, record) of one reply, in the order of its partition. Out: its state, its accepted tokens, what may be
shown of them, its end. MOVES is the whole lifecycle; the README's diagram is generated from it.

Three rules carry the rest:
  * the owner: of each attempt, the first Started owns it, and only the owner's tokens count;
  * the fence: AttemptOpened(current + 1) closes the attempt before it; what that attempt wrote later is void;
  * the end: the first valid end wins, and nothing follows it.
Anyone may append to the log, so no record is an error: `apply` says by a Verdict why one did not count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, TypeAlias

from schemas import reply_records as r
from schemas.events import Origin, unpack_ids
from schemas.ids import Incarnation, ReplyId


class State(StrEnum):
    UNSEEN = "UNSEEN"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    PREEMPTED = "PREEMPTED"
    RESUMING = "RESUMING"
    FINISHED = "FINISHED"
    STOPPED = "STOPPED"
    FLAGGED = "FLAGGED"
    SHED = "SHED"
    REJECTED = "REJECTED"
    REDIRECTED = "REDIRECTED"
    TOLD = "TOLD"
    FAILED = "FAILED"

    @property
    def open(self) -> bool:
        return self in OPEN

    @property
    def ended(self) -> bool:
        return self is not State.UNSEEN and self not in OPEN


OPEN = frozenset({State.QUEUED, State.RUNNING, State.PREEMPTED, State.RESUMING})


class Verdict(Enum):
    """What a record did to a reply."""

    COUNTED = "counted"
    REPEAT = "says again what the log already said"
    STALE = "belongs to an attempt that is not the current one"
    FOREIGN = "was written by a replica that does not own the attempt"
    VOID = "means nothing in this state"
    GAP = "leaves a hole in the tokens"
    ENDED = "comes after the end"


Record: TypeAlias = (
    r.Accepted
    | r.Rejected
    | r.Redirected
    | r.UsageTold
    | r.Dispatched
    | r.Started
    | r.Tokens
    | r.Preempted
    | r.AttemptOpened
    | r.Cleared
    | r.Flagged
    | r.Finished
    | r.Stopped
    | r.Shed
    | r.Failed
    | r.ListenerAttached
    | r.ListenerDetached
)

_Q, _R, _P, _S = State.QUEUED, State.RUNNING, State.PREEMPTED, State.RESUMING

MOVES: dict[type[Record], dict[State, State]] = {
    r.Accepted: {State.UNSEEN: _Q},
    r.Rejected: {State.UNSEEN: State.REJECTED},
    r.Redirected: {State.UNSEEN: State.REDIRECTED},
    r.UsageTold: {State.UNSEEN: State.TOLD},
    r.Dispatched: {_Q: _Q, _R: _R, _P: _P, _S: _S},
    r.Started: {_Q: _R, _S: _R, _P: _R},
    r.Tokens: {_R: _R, _P: _P},
    r.Preempted: {_R: _P},
    r.AttemptOpened: {_Q: _S, _R: _S, _P: _S, _S: _S},
    r.Cleared: {_Q: _Q, _R: _R, _P: _P, _S: _S},
    r.Flagged: dict.fromkeys((_Q, _R, _P, _S), State.FLAGGED),
    r.Finished: {_R: State.FINISHED, _P: State.FINISHED},
    r.Stopped: dict.fromkeys((_Q, _R, _P, _S), State.STOPPED),
    r.Shed: {_Q: State.SHED},
    r.Failed: dict.fromkeys((_Q, _R, _P, _S), State.FAILED),
    r.ListenerAttached: {_Q: _Q, _R: _R, _P: _P, _S: _S},
    r.ListenerDetached: {_Q: _Q, _R: _R, _P: _P, _S: _S},
}


@dataclass(slots=True)
class Reply:
    """One reply, folded. `ids` and `texts` hold the accepted tokens, one of each per token; token n is at n - 1.

    `logprobs` has, by n, those of the tokens that came with them. `fingerprints` are those of the replicas that wrote
    it, in their order: one that went on under another is not the reply that would never have broken.
    """

    id: ReplyId
    state: State = State.UNSEEN
    attempt: int = 0
    owner: Incarnation | None = None
    accepted: r.Accepted | None = None
    ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    logprobs: dict[int, r.TokenLogprob] = field(default_factory=dict)
    cleared: int = 0
    finished: r.Finished | None = None
    reason: str | None = None
    end: Record | None = None
    gap_attempt: int | None = None
    started: r.Started | None = None
    fingerprints: list[str] = field(default_factory=list)
    request: Origin | None = None
    addressees: list[tuple[int, str, Incarnation]] = field(default_factory=list)
    listeners: set[tuple[str, str]] = field(default_factory=set)
    attached_offset: int = -1

    @property
    def last(self) -> int:
        """The number of the last token that may be shown; of a checked reply, the last cleared one."""
        if self.accepted is not None and self.accepted.checked:
            return min(len(self.texts), self.cleared)
        return len(self.texts)

    @property
    def end_id(self) -> int | None:
        """The event id of the end, one past the last token; None while the reply is open."""
        return self.last + 1 if self.state.ended else None

    @property
    def cached_tokens(self) -> int:
        """Of the prompt's tokens those that its last start found computed; it may have found the reply's own too."""
        cached = self.started.cached_tokens if self.started else 0
        return min(cached, self.accepted.prompt_tokens) if self.accepted else cached

    @property
    def text(self) -> str:
        return "".join(self.texts[: self.last])

    @property
    def gap(self) -> bool:
        """A reader met a hole in the tokens, or a finish whose count is not the accepted one, in some attempt."""
        return self.gap_attempt is not None

    def apply(self, offset: int, record: Record) -> Verdict:
        """Folds the record at `offset` in; a record that does not count changes nothing but `gap`."""
        if self.end is not None:
            return Verdict.ENDED
        kind = type(record)
        if kind is r.Accepted and self.accepted is not None:
            return Verdict.REPEAT
        guard = _GUARDS.get(kind)
        verdict = guard(self, record) if guard else Verdict.COUNTED
        if verdict is Verdict.GAP:
            self.gap_attempt = self.attempt
        if verdict is not Verdict.COUNTED:
            return verdict
        target = MOVES[kind].get(self.state)
        if target is None:
            return Verdict.VOID
        _EFFECTS[kind](self, offset, record)
        self._move(target, record)
        return Verdict.COUNTED

    def _move(self, target: State, record: Record) -> None:
        if target is State.FINISHED and self.cleared < len(self.texts) and self.accepted and self.accepted.checked:
            return  # a checked reply ends at whichever of Finished and Cleared(count) comes second
        if type(record) is r.Cleared and self.finished is not None and self.cleared >= self.finished.count:
            target, record = State.FINISHED, self.finished
        self.state = target
        if target not in OPEN:
            self.end = record
            self.reason = _reason(record)
            del self.ids[self.last :], self.texts[self.last :]
            self.logprobs = {n: logprob for n, logprob in self.logprobs.items() if n <= self.last}


def _of_attempt(reply: Reply, record: r.Dispatched | r.Started) -> Verdict:
    return Verdict.COUNTED if record.attempt == reply.attempt else Verdict.STALE


def _may_start(reply: Reply, record: r.Started) -> Verdict:
    if record.attempt != reply.attempt:
        return Verdict.STALE
    if reply.owner not in (None, record.incarnation):
        return Verdict.FOREIGN
    return Verdict.REPEAT if reply.finished or reply.state is State.RUNNING else Verdict.COUNTED


def _by_owner(reply: Reply, record: r.Tokens | r.Preempted | r.Finished) -> Verdict:
    if record.attempt != reply.attempt:
        return Verdict.STALE
    if reply.owner != record.incarnation:
        return Verdict.FOREIGN
    return Verdict.REPEAT if reply.finished else Verdict.COUNTED


def _next_tokens(reply: Reply, record: r.Tokens) -> Verdict:
    verdict, known = _by_owner(reply, record), len(reply.texts)
    if verdict is not Verdict.COUNTED or record.first > known + 1:
        return Verdict.GAP if verdict is Verdict.COUNTED else verdict
    return Verdict.REPEAT if record.first + len(record.texts) - 1 <= known else Verdict.COUNTED


def _whole_finish(reply: Reply, record: r.Finished) -> Verdict:
    verdict = _by_owner(reply, record)
    return Verdict.GAP if verdict is Verdict.COUNTED and record.count != len(reply.texts) else verdict


def _next_attempt(reply: Reply, record: r.AttemptOpened) -> Verdict:
    if record.attempt != reply.attempt + 1:
        return Verdict.STALE
    return Verdict.VOID if reply.finished else Verdict.COUNTED


def _if_checked(reply: Reply, _: r.Cleared | r.Flagged) -> Verdict:
    return Verdict.COUNTED if reply.accepted and reply.accepted.checked else Verdict.VOID


def _still_abandoned(reply: Reply, record: r.Stopped) -> Verdict:
    return Verdict.VOID if record.seen is not None and reply.attached_offset > record.seen else Verdict.COUNTED


_GUARDS: dict[type[Record], Callable[[Reply, Any], Verdict]] = {
    r.Dispatched: _of_attempt,
    r.Started: _may_start,
    r.Tokens: _next_tokens,
    r.Preempted: _by_owner,
    r.Finished: _whole_finish,
    r.AttemptOpened: _next_attempt,
    r.Cleared: _if_checked,
    r.Flagged: _if_checked,
    r.Stopped: _still_abandoned,
}


def _accept(reply: Reply, _: int, record: r.Accepted) -> None:
    reply.accepted, reply.attempt = record, 1


def _address(reply: Reply, _: int, record: r.Dispatched) -> None:
    reply.addressees.append((record.attempt, record.replica, record.incarnation))
    reply.request = record.request


def _start(reply: Reply, _: int, record: r.Started) -> None:
    reply.owner, reply.started, reply.request = record.incarnation, record, record.request
    if record.fingerprint not in reply.fingerprints:
        reply.fingerprints.append(record.fingerprint)
    addressee = (record.attempt, record.replica, record.incarnation)
    if addressee not in reply.addressees:
        reply.addressees.append(addressee)


def _take_tokens(reply: Reply, _: int, record: r.Tokens) -> None:
    known = len(reply.texts) + 1 - record.first
    reply.ids.extend(unpack_ids(record.ids)[known:])
    reply.texts.extend(record.texts[known:])
    if record.logprobs:
        reply.logprobs.update(list(enumerate(record.logprobs, record.first))[known:])


def _open_attempt(reply: Reply, _: int, record: r.AttemptOpened) -> None:
    reply.attempt, reply.owner = record.attempt, None


def _clear(reply: Reply, _: int, record: r.Cleared | r.Flagged) -> None:
    reply.cleared = max(reply.cleared, record.upto)


def _finish(reply: Reply, _: int, record: r.Finished) -> None:
    reply.finished = record


def _attach(reply: Reply, offset: int, record: r.ListenerAttached) -> None:
    reply.listeners.add((record.edge, record.stream))
    reply.attached_offset = offset


def _detach(reply: Reply, _: int, record: r.ListenerDetached) -> None:
    reply.listeners.discard((record.edge, record.stream))


def _nothing(reply: Reply, offset: int, record: Record) -> None:
    """The move itself is the effect."""


_EFFECTS: dict[type[Record], Callable[[Reply, int, Any], None]] = dict.fromkeys(MOVES, _nothing) | {
    r.Accepted: _accept,
    r.Dispatched: _address,
    r.Started: _start,
    r.Tokens: _take_tokens,
    r.AttemptOpened: _open_attempt,
    r.Cleared: _clear,
    r.Flagged: _clear,
    r.Finished: _finish,
    r.ListenerAttached: _attach,
    r.ListenerDetached: _detach,
}


def _reason(end: Record) -> str | None:
    match end:
        case r.Stopped():
            return end.by
        case r.Flagged():
            return end.category
        case r.Finished() | r.Rejected() | r.Shed() | r.Failed():
            return end.reason
    return None
