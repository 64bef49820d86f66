"""What goes wrong, done to a running stack: how each kind of fault begins and how it is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.chaos.plan import Fault
from tests.chaos.troubled import TroubledStack

Act = Callable[[TroubledStack, str], object]


def _nothing(_: TroubledStack, __: str) -> None:
    pass


# How it begins, and how it is over. What is told to leave comes back by itself.
KINDS: dict[str, tuple[Act, Act]] = {
    "kill": (TroubledStack.kill, TroubledStack.begin),
    "freeze": (TroubledStack.freeze, TroubledStack.thaw),
    "leave": (TroubledStack.leave, _nothing),
    "fill": (TroubledStack.fill, TroubledStack.empty),
}


class Faults:
    """The faults of a plan, each when its time comes. One falls only on a process that is ready; `fallen` counts."""

    def __init__(self, stack: TroubledStack, faults: tuple[Fault, ...]) -> None:
        self._stack = stack
        self._due = sorted(faults, key=lambda fault: -fault.at_s)
        self._under_way: list[Fault] = []
        self.fallen: Counter[tuple[str, str]] = Counter()

    @property
    def over(self) -> bool:
        return not self._due and not self._under_way

    def happen(self, now_s: float) -> None:
        """What is due begins, and what has lasted long enough is over."""
        for fault in [fault for fault in self._under_way if now_s >= fault.at_s + fault.for_s]:
            self._under_way.remove(fault)
            self._of(fault)[1](self._stack, fault.target)
        while self._due and now_s >= self._due[-1].at_s:
            fault = self._due.pop()
            if self._stack.up(fault.target):
                self._of(fault)[0](self._stack, fault.target)
                self._under_way.append(fault)
                self.fallen[fault.kind, fault.target] += 1

    def _of(self, fault: Fault) -> tuple[Act, Act]:
        verb = fault.kind.removesuffix(" broker")
        return KINDS["leave" if verb == "stop" else verb]
