"""Processes and the places they hold: a Role is one place in a cell, its process comes and goes.

Each process steps when it has something to read, else now and then. It dies of a Crash, or of an error of the log, as
the real one does; its role then starts the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from random import Random
from typing import Any

from tests.simulation.world import World
from topics.catalog import EDGES, REPLICAS
from topics.errors import TopicsError

IDLE_MS = 300, 800
WOKEN_MS = 1, 5, 20, 60, 150
BY_BEATS_MS = 5, 60, 150, 300
BEATS = (REPLICAS, EDGES)


class Crash(BaseException):
    """The process is gone, at once; nothing in the product may catch it."""


class Process:
    """One process from its start to its death. `name` is new for each: role and number."""

    pace_ms: tuple[int, int] = (1, 8)

    def __init__(self, role: Role, name: str) -> None:
        self.role, self.name, self.world = role, name, role.world
        self.random: Random = self.world.random(name)
        self.alive = True
        self.reads: frozenset[str] = frozenset()
        self.failing: dict[str, int] = {}
        self.repeating: dict[str, int] = {}
        self.repeat_within_ms = 200
        self.slow_ms = 0
        self.ghost = False
        self.left_behind: list[Callable[[], None]] = []
        self._armed: list[tuple[int, Callable[[], None]]] = []
        self._wake_at: int | None = None
        self._busy = False

    def start(self) -> None:
        """Makes the clients and what they serve."""
        raise NotImplementedError

    def step(self) -> bool:
        """One pass; whether there was something to do."""
        raise NotImplementedError

    def arm(self, calls: int, action: Callable[[], None]) -> None:
        """`action` happens just before the call to the log after so many more."""
        self._armed.append((calls, action))

    def call(self, what: str) -> None:
        """Every call of a client of this process comes by here first."""
        if self.ghost:
            return
        if not self.alive:
            raise Crash(what)
        due = [action for calls, action in self._armed if calls <= 0]
        self._armed = [(calls - 1, action) for calls, action in self._armed if calls > 0]
        for action in due:
            self.world.note(self.name, f"about to {what}")
            action()
        if not self.alive:
            raise Crash(what)

    def guarded(self, call: Callable[[], Any]) -> Any:
        """Runs something of this process; what ends it is an end of the process, not of the run."""
        if not self.alive:
            return None
        try:
            return call()
        except Crash:
            self.die("crashed")
        except TopicsError as error:
            self.die(f"stopped: {error}")
        except Exception as error:  # noqa: BLE001  a fault of the product: the run goes on, and tells of it
            self.world.raised.append(f"{self.name}: {error!r}")
            self.die(f"raised {error!r}")
        return None

    def begin(self) -> None:
        self.world.note(self.name, "starts")
        self.guarded(self.start)
        self.wake(0)

    def wake(self, delay_ms: int) -> None:
        """Steps in `delay_ms` at the latest."""
        at = self.world.now_ms + delay_ms
        if self.alive and (self._wake_at is None or at < self._wake_at):
            self._wake_at = at
            self.world.after(delay_ms, lambda: self._woken(at), self)

    def _woken(self, at: int) -> None:
        if self._wake_at == at and self.alive:
            self._wake_at = None
            busy = self.guarded(self.step)
            self.wake(self.random.randint(*self.pace_ms) if busy else IDLE_MS[not self._busy])
            self._busy = bool(busy)

    def die(self, why: str) -> None:
        """What it had sent but not been told of lands or is lost, a bit of it after its death."""
        if not self.alive:
            return
        self.alive = False
        self.world.note(self.name, why)
        for ending in self.left_behind:
            ending()
        self.role.died(self)


class Role:
    """One place in the cell: `process` holds it now.

    `rests`: nobody takes it until it is started. `lost`: nobody ever does. `dies_again`: the next one's last call.
    """

    def __init__(self, world: World, name: str, make: Callable[[Role, str], Process]) -> None:
        self.world, self.name = world, name
        self.random = world.random(name)
        self.starts = 0
        self.rests = self.lost = False
        self.dies_again: int | None = None
        self._make = make
        self.process: Process
        self.all: list[Process] = []

    def begin(self) -> Process:
        """A new process takes the place, whatever the one before it is doing."""
        self.rests = False
        self.starts += 1
        self.process = self._make(self, f"{self.name}.{self.starts}")
        self.all.append(self.process)
        if self.dies_again is not None:
            self.process.arm(self.dies_again, partial(self.process.die, "crashes again"))
            self.dies_again = None
        self.process.begin()
        return self.process

    def died(self, process: Process) -> None:
        if process is self.process and not self.rests:
            self.world.after(self.random.randint(20, 400), lambda: self._restart(process))

    def _restart(self, dead: Process) -> None:
        if self.process is dead and not self.rests:
            self.begin()

    def wake(self, topic: str) -> None:
        for process in self.all[-2:]:
            if process.alive and topic in process.reads:
                process.wake(process.random.choice(BY_BEATS_MS if topic in BEATS else WOKEN_MS))


class Task(Future[Any]):
    """Work beside the loop. Who waits for it makes it happen."""

    def __init__(self, process: Process, work: Callable[[], Any]) -> None:
        super().__init__()
        self._process, self._work = process, work
        self.begun = False

    def run(self) -> None:
        if self.begun:
            return
        self.begun = True
        try:
            self.set_result(self._work())
        except Exception as error:  # noqa: BLE001  as executors do
            self.set_exception(error)

    def run_after_death(self) -> None:
        self._process.ghost = True
        self.run()
        self._process.ghost = False

    def result(self, timeout: float | None = None) -> Any:
        self.run()
        return super().result(0)


class Beside(Executor):
    """The executor of a process: what it is given happens a while later, or dies with the process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._tasks: list[Task] = []
        process.left_behind.append(self._left_behind)

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        process = self._process
        task = Task(process, lambda: call(*args, **kwargs))

        def due() -> None:
            process.guarded(task.run)
            process.wake(1)

        self._tasks = [*(task for task in self._tasks if not task.begun), task]
        process.world.after(process.random.choice((1, 5, 30, 120)), due, process)
        return task

    def _left_behind(self) -> None:
        """A commit that was on its way when the process died may be carried out after its death, or fenced."""
        for task in self._tasks:
            if not task.begun and self._process.random.random() < 0.5:
                self._process.world.after(self._process.random.randint(0, 60), task.run_after_death)
