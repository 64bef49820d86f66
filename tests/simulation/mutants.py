"""Faults put into the product on purpose, one at a time: what the simulator is worth is what it finds.

Each is a line of a function and what stands there instead. It is gone again when the `with` ends. A mutant whose line
is no longer there raises: choose the line that does its work now.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from edge import view
from engine import block_manager, replica
from schemas import reply
from streams import intake, router, settlement, supervisor
from streams import replicas as seen_replicas
from streams.runtime import runner
from topics import tail


@dataclass(frozen=True)
class Mutant:
    """`where` is the owner of a function and its name; `change` what stands in it, and what then stands there.

    `found_by` is a seed that finds it.
    """

    name: str
    where: tuple[Any, str]
    change: tuple[str, str]
    found_by: int = -1


OF_THE_STAGES = (
    Mutant(
        "commits before outputs are acknowledged",
        (runner.Runner, "_commit"),
        ("self._producer.flush(ACKNOWLEDGE_S)", "pass"),
        found_by=199,
    ),
    Mutant(
        "sends a request before Accepted is acknowledged",
        (runner.Runner, "_act"),
        ("self._producer.flush(ACKNOWLEDGE_S)", "pass"),
        found_by=2,
    ),
    Mutant("ignores client keys", (intake, "admit"), ("if used is not None:", "if False:"), found_by=0),
    Mutant(
        "forgets parked messages in a restart",
        (intake.Intake, "restore"),
        (".put(event)", ".put(replace(event, parked=()))"),
        found_by=22,
    ),
    Mutant(
        "folds from P instead of L",
        (settlement, "low_water"),
        ('if name == "L" and number.isdecimal()', "if False"),
        found_by=2,
    ),
    Mutant(
        "settles again what was settled",
        (settlement.Settlement, "apply"),
        ("if message.offset >= self._settled_to[message.place]", "if True"),
        found_by=21,
    ),
    Mutant("commits past the backlog", (router.Router, "position"), ("if backlog", "if False"), found_by=24),
    Mutant(
        "takes no silent replica for dead",
        (seen_replicas.Replicas, "dead"),
        (">= SILENT_BEATS", ">= 10**9"),
        found_by=17,
    ),
)
FOUND_HERE = (
    Mutant(
        "does not see that its beat was lost",
        (runner.Runner, "_act"),
        ("if self._undelivered:", "if False:"),
        found_by=18,
    ),
    Mutant(
        "lets a replica name what is over for ever",
        (supervisor.Supervisor, "_beat"),
        ("if isinstance(message.event, ReplicaBeat):", "if False:"),
        found_by=23,
    ),
)
OF_THE_REST = (
    Mutant(
        "counts two owners of an attempt", (reply, "_may_start"), ("Verdict.FOREIGN", "Verdict.COUNTED"), found_by=2127
    ),
    Mutant(
        "goes on after a failed delivery",
        (replica.Replica, "_write"),
        ("if error is not None and job is not None:", "if False:"),
        found_by=246,
    ),
    Mutant(
        "keeps a block of an ended reply",
        (block_manager.BlockManager, "release"),
        ("if block.ref_count == 0:", "if block.ref_count == 0 and number % 7:"),
        found_by=0,
    ),
    Mutant(
        "leaves a record out at the seam",
        (tail.Tail, "_read_to_seam"),
        ("record.offset < seam", "record.offset < seam - 1"),
        found_by=1,
    ),
    Mutant(
        "sends the last event again to who resumes",
        (view.ReplyView, "index_after"),
        ("[cursor] + 1", "[cursor]"),
        found_by=0,
    ),
)
MUTANTS = OF_THE_STAGES + FOUND_HERE + OF_THE_REST


@contextmanager
def put_in(mutant: Mutant) -> Iterator[None]:
    """The product with this fault."""
    (owner, name), (line, instead) = mutant.where, mutant.change
    function = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    if line not in source:
        raise ValueError(f"{mutant.name}: {name} has no {line!r} any more")
    names: dict[str, Any] = {**function.__globals__, "replace": replace}
    exec(compile(source.replace(line, instead), mutant.name, "exec"), names)
    tables = [table for table in vars(inspect.getmodule(function)).values() if isinstance(table, dict)]
    places = [(table, key) for table in tables for key, value in table.items() if value is function]
    _place(owner, name, names[name], places)
    try:
        yield
    finally:
        _place(owner, name, function, places)


def _place(owner: Any, name: str, function: Any, tables: list[tuple[dict[Any, Any], Any]]) -> None:
    """In its owner, and in the tables of its module that name it."""
    setattr(owner, name, function)
    for table, key in tables:
        table[key] = function
