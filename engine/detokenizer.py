"""Token ids to text, one at a time.

In: token ids in order. Out: the text that each makes visible. The invariant: the text depends on the tokens alone,
neither on how they are cut into records nor on which process saw the first of them; and no part of a stop string
is ever shown.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """The text that a token made visible. `stopped`: a stop string is complete, and nothing may follow."""

    text: str
    stopped: bool = False


class Detokenizer:
    """Holds back half a UTF-8 character, and text that may be the beginning of a stop string."""

    def __init__(self, piece: Callable[[int], bytes], stop: tuple[str, ...] = ()) -> None:
        if "" in stop:
            raise ValueError("an empty stop string would end every reply")
        self._piece = piece
        self._stop = stop
        self._longest = max(map(len, stop), default=0)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    @property
    def holding(self) -> bool:
        """Something is held back that an end of the reply would make visible."""
        return bool(self._held or self._decoder.getstate()[0])

    def push(self, token_id: int) -> Piece:
        """The text after one more token; bytes that are no UTF-8 become U+FFFD."""
        return self._release(self._decoder.decode(self._piece(token_id)))

    def flush(self) -> str:
        """What was held back, at the end of the reply."""
        return self._release(self._decoder.decode(b"", final=True)).text + self._held

    def _release(self, text: str) -> Piece:
        self._held += text
        # The stop string that ends first wins, as if the text had come one character at a time.
        ends = [(at + len(stop), at) for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if ends:
            shown, self._held = self._held[: min(ends)[1]], ""
            return Piece(shown, stopped=True)
        keep = self._beginning_of_a_stop()
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return Piece(shown)

    def _beginning_of_a_stop(self) -> int:
        """How many characters at the end of the held text may become a stop string."""
        for size in range(min(self._longest - 1, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stop):
                return size
        return 0
