"""The product's own stages and replicas as processes of the simulation: only their surroundings are made here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from engine.beats import EVERY_S, ON_CHANGE_S, Beats
from engine.engine import Engine
from engine.errors import Replaced
from engine.lanes import Lanes
from engine.replica import Identity, Load, Outbox, Replica
from engine.scheduler import Limits
from engine.scripted import Script, ScriptedRunner, echo
from engine.sequence import Sequence as Computed
from engine.succession import Watch
from schemas.ids import Incarnation
from schemas.tokenizer import ChatTokenizer
from streams.router import Router
from streams.runtime import watch
from streams.runtime.effects import Effects
from streams.runtime.main import STAGES
from streams.runtime.requests import Requests
from streams.runtime.runner import Runner, Shell
from streams.stage import Message
from tests.simulation.limited import MINI
from tests.simulation.processes import Beside, Process, Role
from tests.simulation.sim_log import SimLog
from tests.simulation.surroundings import CODEC, Surroundings, Unmeasured
from topics.catalog import REPLICAS
from topics.schemas import Decoder
from topics.store.contract import SavedAt, Store
from topics.store.progress import Progress

DRAIN_MS = 300
FOR_EVER = -1


class StandsStill(BaseException):
    """A step that never ends."""


class StageProcess(Process):
    """One stage with its runner, as `streams.runtime.main` puts them together."""

    def __init__(self, around: Surroundings, role: Role, name: str) -> None:
        super().__init__(role, name)
        self._around = around
        self.stage, _, instance = role.name.partition("#")
        self.instance = instance or "0"
        self.runner: Runner | None = None
        self.beside = Beside(self)

    def start(self) -> None:
        around, incarnation = self._around, Incarnation(self.name)
        log = SimLog(around.log, self)
        effects = Effects(
            Requests(log),
            cast(Store, around.store),
            Progress(log, cast(Store, around.store)),
            Decoder(log, CODEC),
            around.routes,
            around.tokenizer.context,
            now_ms=lambda: self.world.now_ms,
        )
        shell = Shell(
            log=log,
            decoder=Decoder(log, CODEC),
            encoder=around.encoder(incarnation),
            beside=self.beside,
            instance=self.instance,
            perform=effects.perform,
            project=self._project,
            watch=watch.Watch(Unmeasured(self.stage, around.cell.meters, self._now_s, self._now_s)),
        )
        pool = self.stage.removeprefix("router.")
        other = Router(pool, around.sizes.backlog, around.routes) if pool != self.stage else None
        self.runner = Runner(other or STAGES[self.stage](around.cell, incarnation), shell)

    def step(self) -> bool:
        assert self.runner is not None
        return bool(self.runner.step(self._now_s()))

    def expel(self) -> None:
        """The group takes it for dead."""
        if self.runner is not None:
            name = self.runner._stage.name
            group = self._around.log._groups.get(name)
            if group is not None and self.instance in group.members:
                self._around.log.expel(name, self.instance)

    def leave(self) -> None:
        """As on SIGTERM."""
        if self.runner is not None:
            self.role.rests = True
            self.guarded(self.runner.close)
            self.die("leaves")

    def _now_s(self) -> float:
        return self.world.now_ms / 1000

    def _project(self, messages: Sequence[Message]) -> None:
        self.call("save to the store")
        self._around.store.save(SavedAt(message.offset, message.event) for message in messages)
        self.call("see it saved")


class ReplicaProcess(Process):
    """One replica on a scripted runner, and its beats; driven as `engine.main` drives them.

    A step takes as long as its pace says, by the engine's clock. One that is `stuck_ms` stands still in its middle, and
    the beats go on.
    """

    def __init__(self, around: Surroundings, role: Role, name: str) -> None:
        super().__init__(role, name)
        self._around = around
        self.pace_ms = around.sizes.step_ms
        self._pool = MINI if role.name.startswith(MINI) else "main"
        self._slot = int(role.name[-1])
        self.silent_until = self._leave_at = self.stuck_ms = self._worked_ms = 0
        self._replaced = self._in_step = False
        self._beaten, self._beaten_at = Load(), 0
        self.replica: Replica
        self.blocks = 0

    def start(self) -> None:
        around, sizes = self._around, self._around.sizes
        log = SimLog(around.log, self)
        script = None if sizes.alike else own_words(around.tokenizer, sum(map(ord, self.name)))
        runner = ScriptedRunner(around.tokenizer, script, self._computes, num_blocks=sizes.blocks)
        limits = Limits(max_running=sizes.running, reserve=0)
        engine = Engine(runner, limits, clock=lambda: self._worked_ms / 1000)
        identity = Identity(self._pool, self._slot, Incarnation(self.name))
        lanes = Lanes(log, Decoder(log, CODEC), self._pool, self._slot)
        self.replica = Replica(identity, engine, around.tokenizer, lanes, self._outbox(log))
        self.replica.note()
        self.blocks = engine.free_blocks
        watch = Watch(log, Decoder(log, CODEC), identity)
        self.reads -= {REPLICAS}
        self._beats = Beats(self.replica, watch, self._outbox(log), lambda error: None)
        self.world.after(0, self._beat_in_turn, self)

    def step(self) -> bool:
        if self._in_step:
            return False
        if self._replaced:
            self._leave("is replaced")
            return False
        try:
            self.replica.step()
        except StandsStill:
            self.world.note(self.name, "stands still for ever")
            self.role.lost = self.role.rests = True
            return False
        self.world.after(int(ON_CHANGE_S * 1000), self._beat_on_change, self)
        if self.replica.draining and not self._leave_at:
            self._leave_at = self.world.now_ms + DRAIN_MS
        if self._leave_at and (self.replica.idle or self.world.now_ms >= self._leave_at):
            self._leave("leaves")
        return not self.replica.idle

    def drain(self) -> None:
        self.replica.drain()

    def _computes(self, _: list[Computed]) -> None:
        self._worked_ms += self.pace_ms[1]
        if not self.stuck_ms or not self.replica.load.step:
            return
        stuck_ms, self.stuck_ms, self._in_step = self.stuck_ms, 0, True
        if stuck_ms == FOR_EVER:
            raise StandsStill
        self._worked_ms += stuck_ms
        self.world.note(self.name, f"stands still for {stuck_ms} ms")
        self.world.stand_still((self.name, "step"), stuck_ms)
        self.world.note(self.name, "goes on")
        self._in_step = False
        self.call("go on")

    def _outbox(self, log: SimLog) -> Outbox:
        return Outbox(log.producer(), self._around.encoder(Incarnation(self.name)), self._around.routes)

    def _leave(self, why: str) -> None:
        self.replica.drop_all()
        self._beats.beat(self.replica.load)
        for producer in (self.replica._outbox.producer, self._beats._outbox.producer):
            producer.close()
        self.die(why)

    def _beat_in_turn(self) -> None:
        if self.alive:
            self.guarded(self._beat)
            self.guarded(self._look)
            self.world.after(int(EVERY_S * 1000), self._beat_in_turn, self)

    def _beat_on_change(self) -> None:
        """At most every 50 ms."""
        load, since = self.replica.load, self.world.now_ms - self._beaten_at
        if self.alive and since >= ON_CHANGE_S * 1000 and changed(load, self._beaten):
            self.guarded(self._beat)
        self.guarded(self._look)

    def _look(self) -> None:
        try:
            self._beats.look()
        except Replaced:
            self._replaced = True
            self.wake(0)

    def _beat(self) -> None:
        if self.world.now_ms >= self.silent_until:
            self._beaten, self._beaten_at = self.replica.load, self.world.now_ms
            self._beats.beat(self._beaten)


def own_words(tokenizer: ChatTokenizer, shift: int) -> Script:
    """A script as long as the echo, in letters that another replica would not say in these places."""
    said, letters = echo(tokenizer), tokenizer.encode("abcdefghijklmnopqrstuvw")

    def script(prompt: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(letters[(n + shift) % len(letters)] for n in range(len(said(prompt))))

    return script


def changed(load: Load, before: Load) -> bool:
    """Whether a beat would say something new, steps and blocks aside."""
    return (load.running, load.waiting, load.lanes, load.dropped, load.draining) != (
        before.running,
        before.waiting,
        before.lanes,
        before.dropped,
        before.draining,
    )
