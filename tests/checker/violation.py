"""A promise that was not kept, as a plain value."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.ids import ReplyId


@dataclass(frozen=True, slots=True)
class Violation:
    """`offsets` say where to look: in the topic that the rule is about, in the partition of the reply or its user."""

    rule: str
    reply: ReplyId | None
    offsets: tuple[int, ...]
    found: object
    expected: object

    def __str__(self) -> str:
        where = f" at {', '.join(map(str, self.offsets))}" if self.offsets else ""
        return f"{self.rule}: {self.reply or '-'}{where}: {self.found}, expected {self.expected}"
