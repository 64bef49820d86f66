"""Plans as operators write them, a TOML file, to the record that makes them hold; and limits as words.

`plans.toml` beside this file is the shipped one and says what each field means. What is wrong is told with file, field,
value and what was expected; a field that is not known is an error, since a typing mistake would lift a limit.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from schemas.quota_records import COUNTED, EACH_MODEL, REPLIES, Limit, Plan, PlansLoaded
from streams.allowances import check_limits, check_plan

SHIPPED = Path(__file__).with_name("plans.toml")
_AMOUNT = re.compile(r"(\d[\d_]{0,30})/(\S+)", re.ASCII)
_OWN_LIMIT = re.compile(r"(?:(?P<model>\S+):)?(?P<what>[a-z]+)=(?P<amount>\S+)", re.ASCII)
_TYPES: Mapping[str, type] = {
    "tier": str,
    "mini": str,
    "default_max_tokens": int,
    "cached_percent": int,
    "time_zone": str,
    "limits": dict,
}
_NAMES = {str: "text", int: "an integer", dict: "a table of models"}


class BadPlans(ValueError):
    """The file or the words cannot be used. Whoever wrote them must mend them."""


def read_plans(path: Path) -> PlansLoaded:
    """Raises BadPlans."""
    try:
        tables = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:  # a number of thousands of digits is a bare ValueError
        raise BadPlans(f"{path}: expected a TOML file of plans: {error}") from error
    if not tables:
        raise BadPlans(f"{path}: expected a table for each plan, such as [free]")
    return PlansLoaded(tuple(_plan(f"{path}: {name}", name, table) for name, table in tables.items()))


def read_limit(text: str) -> Limit:
    """A limit as a word: `tokens=100_000/5h`, `replies=3`, `MODEL:requests=20/1m`. Raises BadPlans."""
    match = _OWN_LIMIT.fullmatch(text)
    if match is None:
        raise BadPlans(f"{text!r}: expected a limit such as tokens=100000/5h, replies=3 or MODEL:requests=20/1m")
    amount = match["amount"]
    value: object = int(amount) if re.fullmatch(r"\d{1,30}", amount, re.ASCII) else amount
    limit = _limit(text, match["model"] or EACH_MODEL, match["what"], value)
    return _checked(text, limit)


def _plan(where: str, name: str, table: object) -> Plan:
    if not isinstance(table, dict):
        raise BadPlans(f"{where}={table!r}: expected a table for the plan, such as [{name}]")
    for key, value in table.items():
        if key not in _TYPES:
            raise BadPlans(f"{where}.{key}: expected one of {', '.join(_TYPES)}")
        if type(value) is not _TYPES[key]:
            raise BadPlans(f"{where}.{key}={value!r}: expected {_NAMES[_TYPES[key]]}")
    if "tier" not in table:
        raise BadPlans(f"{where} has no tier: expected paid, free or background")
    limits = tuple(_limits(f"{where}.limits", table.get("limits", {})))
    given = {field.name: table[field.name] for field in fields(Plan) if field.name in table}
    plan = Plan(**given | {"name": name, "limits": limits})
    try:
        check_plan(plan)
    except ValueError as error:
        raise BadPlans(f"{where}: {error}") from error
    return plan


def _limits(where: str, models: Mapping[str, Any]) -> Iterator[Limit]:
    for model, table in models.items():
        of_model = f"{where}.{model!r}"
        if not isinstance(table, dict):
            raise BadPlans(f'{of_model}={table!r}: expected a table of limits, such as requests = "20/1m"')
        for what, value in table.items():
            for each in value if isinstance(value, list) else [value]:
                yield _checked(f"{of_model}.{what}={each!r}", _limit(f"{of_model}.{what}={each!r}", model, what, each))


def _limit(where: str, model: str, what: str, value: object) -> Limit:
    if what not in COUNTED:
        raise BadPlans(f"{where}: expected one of {', '.join(COUNTED)}")
    if what == REPLIES:
        if type(value) is not int:
            raise BadPlans(f"{where}: expected a number, of replies at once")
        return Limit(model, what, value)
    match = _AMOUNT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise BadPlans(f"{where}: expected an amount and a window, such as 20/1m")
    return Limit(model, what, int(match[1].replace("_", "")), match[2])


def _checked(where: str, limit: Limit) -> Limit:
    try:
        check_limits((limit,), "UTC")
    except ValueError as error:
        raise BadPlans(f"{where}: {error}") from error
    return limit
