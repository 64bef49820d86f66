"""What the log tells of each reply, read a second time and by other hands than the product's.

Written from the design's text of the reply protocol alone; it shares no line with `schemas/reply.py`, so a mistake in
either of the two shows as a difference between them. It favours plain words over speed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from schemas import reply_records as r
from schemas.events import unpack_ids
from schemas.ids import ReplyId
from tests.checker.history import Entry

END_STATES: dict[type, str] = {
    r.Finished: "finished",
    r.Stopped: "stopped",
    r.Flagged: "flagged",
    r.Shed: "shed",
    r.Failed: "failed",
}


@dataclass(frozen=True, slots=True)
class Fence:
    """An attempt that was closed for the next: who had it, each since when, and whether its tokens had a hole."""

    at: Entry
    attempt: int
    serving: dict[str, int]
    hole: bool

    @property
    def given_ms(self) -> int:
        return min(self.serving.values(), default=self.at.at_ms)


@dataclass
class Told:
    """One reply. `first` answered its message: Accepted, Rejected or Redirected; `end` is the entry that closed it."""

    reply: ReplyId
    first: Entry | None = None
    attempt: int = 1
    owner: str | None = None
    began: bool = False
    all_tokens: list[tuple[int, str]] = field(default_factory=list)
    cleared: int = 0
    finished: r.Finished | None = None
    newest_listener: int = -1
    end: Entry | None = None
    end_record: Any = None
    fences: list[Fence] = field(default_factory=list)
    given: list[Entry] = field(default_factory=list)
    hole: bool = False

    @property
    def accepted(self) -> r.Accepted | None:
        event = self.first.event if self.first else None
        return event if isinstance(event, r.Accepted) else None

    @property
    def tokens(self) -> list[tuple[int, str]]:
        """Those that a reader may be shown."""
        checked = self.accepted is not None and self.accepted.checked
        return self.all_tokens[: self.cleared] if checked else self.all_tokens

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(token for token, _ in self.tokens)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(text for _, text in self.tokens)

    @property
    def state(self) -> str:
        return "open" if self.end is None else END_STATES[type(self.end_record)]

    @property
    def reason(self) -> str | None:
        end = self.end_record
        if isinstance(end, r.Stopped):
            return end.by
        if isinstance(end, r.Flagged):
            return end.category
        return None if end is None else str(end.reason)

    def read(self, entry: Entry) -> None:
        """The next record of this reply."""
        if self.first is None:
            if isinstance(entry.event, r.Accepted | r.Rejected | r.Redirected):
                self.first = entry
        elif self.accepted is not None and self.end is None:
            self._read_open(entry, entry.event)

    def _read_open(self, entry: Entry, event: Any) -> None:
        match event:
            case r.Dispatched() if event.attempt == self.attempt:
                self.given.append(entry)
            case r.Started() if event.attempt == self.attempt and self.owner is None:
                self.owner, self.began = event.incarnation, True
                self.given.append(entry)
            case r.Tokens() if self._owned(event) and self.finished is None:
                self._read_tokens(event)
            case r.Finished() if self._owned(event) and event.count == len(self.all_tokens):
                self.finished = self.finished or event
                self._close_if_cleared(entry)
            case r.Finished() if self._owned(event):
                self.hole = True
            case r.AttemptOpened() if event.attempt == self.attempt + 1 and self.finished is None:
                self.fences.append(self._fence(entry))
                self.attempt, self.owner, self.began = event.attempt, None, True
                self.given, self.hole = [], False
            case r.Cleared() if self._checked:
                self.cleared = max(self.cleared, event.upto)
                self._close_if_cleared(entry)
            case r.Flagged() if self._checked:
                self.cleared = max(self.cleared, event.upto)
                self._close(entry, event)
            case r.ListenerAttached():
                self.newest_listener = entry.offset
            case r.Stopped() if event.seen is None or self.newest_listener <= event.seen:
                self._close(entry, event)
            case r.Shed() if not self.began:
                self._close(entry, event)
            case r.Failed():
                self._close(entry, event)

    @property
    def _checked(self) -> bool:
        return self.accepted is not None and self.accepted.checked

    def _fence(self, entry: Entry) -> Fence:
        serving: dict[str, int] = {}
        for given in self.given:
            if self.owner in (None, given.event.incarnation):
                serving.setdefault(given.event.incarnation, given.at_ms)
        return Fence(entry, self.attempt, serving, self.hole)

    def _owned(self, event: r.Tokens | r.Finished) -> bool:
        return event.attempt == self.attempt and self.owner is not None and event.incarnation == self.owner

    def _read_tokens(self, event: r.Tokens) -> None:
        self.hole = self.hole or event.first > len(self.all_tokens) + 1
        for n, token in enumerate(zip(unpack_ids(event.ids), event.texts, strict=True), start=event.first):
            if n == len(self.all_tokens) + 1:
                self.all_tokens.append(token)

    def _close_if_cleared(self, entry: Entry) -> None:
        if self.finished and (not self._checked or self.cleared >= self.finished.count):
            self._close(entry, self.finished)

    def _close(self, entry: Entry, record: Any) -> None:
        self.end, self.end_record = entry, record


def tell(entries: Iterable[Entry]) -> dict[ReplyId, Told]:
    """Every reply in these records of `replies`, each partition in its order."""
    told: dict[ReplyId, Told] = {}
    for entry in entries:
        if reply := entry.reply:
            told.setdefault(reply, Told(reply)).read(entry)
    return told
