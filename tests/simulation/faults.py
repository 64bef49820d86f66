"""What goes wrong, done to the process that holds a role: one function for each kind of fault."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.cell import FOR_EVER, ReplicaProcess, StageProcess
from tests.simulation.edge import EdgeProcess
from tests.simulation.plan import Fault
from tests.simulation.processes import Process, Role
from tests.simulation.surroundings import Surroundings
from topics.catalog import INTAKE_STATE, MESSAGES, REPLIES, SUPERVISOR_STATE

LATE_MS = 6_000
CHANGELOGS = {"intake": INTAKE_STATE, "supervisor": SUPERVISOR_STATE}


def happen(around: Surroundings, fault: Fault) -> None:
    """Now, or at the call that it names. A role that the cell does not have, or whose process is dead, is spared."""
    role = around.roles.get(fault.role)
    if role is not None and role.process.alive and not role.lost:
        around.world.note(role.process.name, fault)
        KINDS[fault.kind](around, fault, role, role.process)


def _crash(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    """The second time, if it is to, while its successor starts."""
    process.arm(fault.call, lambda: process.die("crashes"))
    if fault.count > 1:
        role.dies_again = fault.call


def _down(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    """Dead, and nobody takes its place for a while."""
    role.rests = True
    process.die("is killed")

    def again() -> None:
        if role.rests and not role.lost and role.process is process:
            role.begin()

    around.world.after(fault.for_ms, again)


def _lose(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    """Dead, and nobody ever takes its place; there is another."""
    role.lost = role.rests = True
    process.die("is lost")


def _pause(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    """It stands still in the middle of a step, and goes on as if nothing had been."""
    process.arm(fault.call, lambda: around.world.stand_still(process, fault.for_ms))


def _zombie(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    """It stands still in the middle of a step; another takes its place, and then it goes on beside that one."""

    def stand_still_and_be_replaced() -> None:
        if role.process is process:
            around.world.after(fault.for_ms // 4, lambda: _replace(role, process))
            around.world.stand_still(process, fault.for_ms)
            around.world.after(3_000, lambda: process.die("is found and killed"))

    process.arm(fault.call, stand_still_and_be_replaced)


def _replace(role: Role, process: Process) -> None:
    """Another process takes the place of this one, if it still has it."""
    if role.process is process:
        role.begin()


def _freeze(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    """It stands still between two steps."""
    around.world.standing.append(process)

    def thaw() -> None:
        if process in around.world.standing:
            around.world.standing.remove(process)

    around.world.after(fault.for_ms, thaw)


def _expel(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    if isinstance(process, StageProcess):
        process.arm(fault.call, process.expel)


def _second(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    """Another process of the stage joins, and leaves again or dies; then the group forgets it."""
    name = f"{fault.role}#{fault.name}"
    second = around.role(name, lambda role, name: StageProcess(around, role, name))
    second.begin()

    def over() -> None:
        if isinstance(second.process, StageProcess):
            leaves = fault.count == 1 and second.process.alive and second.process not in around.world.standing
            second.rests = True
            second.process.leave() if leaves else second.process.die("is killed")
            around.world.after(1_000, second.process.expel)

    around.world.after(fault.for_ms, over)


def _fail(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    process.failing[fault.topic] = fault.count


def _slow(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    """The broker takes its time with what it sends, and may never get it if it dies meanwhile."""
    process.slow_ms = fault.for_ms

    def fast_again() -> None:
        process.slow_ms = 0

    around.world.after(2 * fault.for_ms, fast_again)


def _silence(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    if isinstance(process, ReplicaProcess | EdgeProcess):
        process.silent_until = around.world.now_ms + fault.for_ms


def _drain(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    if isinstance(process, ReplicaProcess | EdgeProcess):
        process.drain()


def _leave(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    """It is told to leave, as in a rolling update, and the next takes its place."""
    if isinstance(process, StageProcess) and process not in around.world.standing:
        process.leave()
        around.world.after(fault.for_ms // 4, lambda: _replace(role, process))


def _no_store(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    around.store.down_until = around.world.now_ms + fault.for_ms


def _compact(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    """The cleaner runs."""
    around.log.compact(CHANGELOGS.get(fault.role, REPLIES))


def _repeat(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    process.repeating[REPLIES] = 4 * fault.count


def _again(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    """What it tells intake comes twice, the second time long after: the word of ends, or messages."""
    process.repeating[MESSAGES], process.repeat_within_ms = fault.count, LATE_MS


def _stuck(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    """Its next step takes so long, while its beats go on."""
    if isinstance(process, ReplicaProcess):
        process.stuck_ms = fault.for_ms


def _stuck_for_ever(around: Surroundings, fault: Fault, role: Role, process: Process) -> None:
    """Its next step never ends, while its beats go on; there is another."""
    if isinstance(process, ReplicaProcess):
        process.stuck_ms = FOR_EVER


KINDS: dict[str, Callable[[Surroundings, Fault, Role, Process], None]] = {
    "crash": _crash,
    "down": _down,
    "lose": _lose,
    "pause": _pause,
    "zombie": _zombie,
    "freeze": _freeze,
    "expel": _expel,
    "second": _second,
    "fail": _fail,
    "slow": _slow,
    "silence": _silence,
    "drain": _drain,
    "leave": _leave,
    "no store": _no_store,
    "compact": _compact,
    "repeat": _repeat,
    "again": _again,
    "stuck": _stuck,
    "stuck for ever": _stuck_for_ever,
}
