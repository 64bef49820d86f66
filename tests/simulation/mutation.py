"""A fault put into the product on purpose: a line of a function, and what stands there instead.

It is gone again when the `with` ends. One whose line is no longer there raises: choose the line that does its work now.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tests.simulation.plan import Plan, plan_of


@dataclass(frozen=True)
class Mutant:
    """`where` is the owner of a function and its name; `change` what stands in it, and what then stands there.

    `found_by` is a seed that finds it, or a plan where it takes a rare one.
    """

    name: str
    where: tuple[Any, str]
    change: tuple[str, str]
    found_by: int | Plan

    @property
    def plan(self) -> Plan:
        return plan_of(self.found_by) if isinstance(self.found_by, int) else self.found_by


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
