"""The fields of a JSON body, one at a time: a checked value out, or a BadRequest.

Strict on purpose: a near miss of a type or a value out of range is refused, naming the field, the value and what is
expected. A field that is null was not given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from edge.errors import BadRequest, shown


@dataclass(frozen=True, slots=True)
class Integers:
    """The integers that a field may be: from `least` to `most`."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"an integer from {self.least} to {self.most}"


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers that a field may be: from `least`, or only what is `over` it, to `most`."""

    least: float
    most: float
    over: bool = False

    def __str__(self) -> str:
        if self.over:
            return f"a number over {self.least:g}, at most {self.most:g}"
        return f"a number from {self.least:g} to {self.most:g}"


def json_object(body: bytes) -> dict[str, Any]:
    """The object that a body is."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is no JSON ({error}): expected an object", code="invalid_json") from None
    if not isinstance(fields, dict):
        raise BadRequest(f"the body is {shown(fields)}: expected a JSON object", code="invalid_json")
    return fields


def refuse_others(fields: Mapping[str, Any], known: Collection[str]) -> None:
    """Raises BadRequest when there is a field that is not known."""
    if unknown := sorted(fields.keys() - set(known)):
        raise bad(unknown[0], fields[unknown[0]], f"one of the fields {', '.join(sorted(known))}, and no other")


def integer(fields: Mapping[str, Any], name: str, allowed: Integers, default: int) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if type(value) is not int or not allowed.least <= value <= allowed.most:
        raise bad(name, value, str(allowed))
    return value


def number(fields: Mapping[str, Any], name: str, allowed: Numbers, default: float) -> float:
    value = fields.get(name)
    if value is None:
        return default
    good = type(value) in (int, float) and allowed.least <= value <= allowed.most
    if not good or (allowed.over and value == allowed.least):
        raise bad(name, value, str(allowed))
    return float(value)


def boolean(fields: Mapping[str, Any], name: str, default: bool = False) -> bool:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise bad(name, value, "true or false")
    return value


def says(name: str, value: object, expected: str) -> str:
    return f"{name}={shown(value)}: expected {expected}"


def bad(name: str, value: object, expected: str) -> BadRequest:
    return BadRequest(says(shown(name)[1:-1], value, expected), param=name if name.isascii() else None)
