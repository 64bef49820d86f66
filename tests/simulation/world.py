"""Virtual time, and who acts when: a heap of calls that are due, its order drawn from a seed.

Nothing else decides: no thread, no clock, no hash order. So the same seed makes the same run, byte for byte, and a run
of many seconds takes milliseconds.

A process that stands still in the middle of a step (a pause, a zombie) is the same trick once more: the call that it
was about to make runs the world on for a while first, without it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from random import Random

from topics.log import Append

START_MS = 1_700_000_000_000
DEEPEST = 3
LOOK_AGAIN_MS = 10


class World:
    """`now_ms` is the only clock. `trace` is everything that happened: (virtual ms, who, what).

    `standing` are those who stand still; `raised` is what nobody should ever raise. Who is `watching` sees what is
    sent before it is in the log, and so can do the worst at that moment.
    """

    def __init__(self, seed: str) -> None:
        self.now_ms = START_MS
        self.seed = seed
        self.trace: list[tuple[int, str, object]] = []
        self.standing: list[object] = []
        self.raised: list[str] = []
        self.watching: list[Callable[[Append], None]] = []
        self._random = Random(f"{seed}/order")
        self._numbers = count()
        self._due: list[tuple[int, float, int, object, Callable[[], None]]] = []

    def random(self, who: str) -> Random:
        """A source of its own for each who, so that one fault less leaves the others as they are."""
        return Random(f"{self.seed}/{who}")

    def note(self, who: str, what: object) -> None:
        self.trace.append((self.now_ms - START_MS, who, what))

    def sending(self, append: Append) -> None:
        for watch in tuple(self.watching):
            watch(append)

    def after(self, delay_ms: int, call: Callable[[], None], of: object = None) -> None:
        """`call` is due in so long; while `of` stands still, it waits."""
        due = (self.now_ms + delay_ms, self._random.random(), next(self._numbers), of, call)
        heapq.heappush(self._due, due)

    def run(self, for_ms: int, until: Callable[[], bool] | None = None) -> bool:
        """Lets so much time pass, or less, if `until` holds before; returns whether it held."""
        end = self.now_ms + for_ms
        while self._due and self._due[0][0] <= end:
            at, _, _, of, call = heapq.heappop(self._due)
            self.now_ms = max(self.now_ms, at)
            if of is not None and of in self.standing:
                self.after(LOOK_AGAIN_MS, call, of)
                continue
            call()
            if until is not None and until():
                return True
        self.now_ms = max(self.now_ms, end)
        return False

    def stand_still(self, who: object, for_ms: int) -> None:
        """Called from within a call of `who`: all others go on, then it does."""
        if len(self.standing) < DEEPEST:
            self.standing.append(who)
            self.run(for_ms)
            self.standing.remove(who)
