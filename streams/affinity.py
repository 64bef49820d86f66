"""Which replica was sent the beginning of a prompt before, and so may still have its blocks.

In: the prefix names of what goes to which incarnation. Out: how many blocks of a prompt one was sent. It is a guess:
what a replica has evicted meanwhile it computes again. The invariant: where a name is remembered, so are all names
before it in its prompt, since the least recently sent go first, and of one prompt its end before its beginning.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Container, Sequence

from schemas.ids import Incarnation

NAMES_REMEMBERED = 32_768


class Affinity:
    """Remembers at most `most` names of each incarnation: half a million tokens, and about 6 MB."""

    def __init__(self, most: int = NAMES_REMEMBERED) -> None:
        self._most = most
        self._sent: dict[Incarnation, OrderedDict[bytes, None]] = {}

    def sent(self, incarnation: Incarnation, names: Sequence[bytes]) -> None:
        """Remembers that a prompt of these blocks went there."""
        known = self._sent.setdefault(incarnation, OrderedDict())
        for name in reversed(names[: self._most]):
            known[name] = None
            known.move_to_end(name)
        while len(known) > self._most:
            known.popitem(last=False)

    def blocks(self, incarnation: Incarnation, names: Sequence[bytes]) -> int:
        """How many of a prompt's first blocks went there before."""
        known: Container[bytes] = self._sent.get(incarnation, ())
        return bisect_left(names, True, key=lambda name: name not in known)

    def forget(self, incarnation: Incarnation) -> None:
        """It is leaving, or was replaced: it gets nothing more."""
        self._sent.pop(incarnation, None)

    def keep(self, alive: Container[Incarnation]) -> None:
        """Forgets all others: a replica that starts again has nothing left."""
        self._sent = {incarnation: known for incarnation, known in self._sent.items() if incarnation in alive}
