"""The fields of a JSON body, one at a time: a checked value out, or a BadRequest.

Strict on purpose: a near miss of a type or a value out of range is refused, naming the field, the value and what is
expected. A field that is null was not given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import orjson

from edge.errors import BadRequest, shown


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


def integer(fields: Mapping[str, Any], name: str, least: int, most: int, default: int) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if type(value) is not int or not least <= value <= most:
        raise bad(name, value, f"an integer from {least} to {most}")
    return value


def number(fields: Mapping[str, Any], name: str, least: float, most: float, default: float) -> float:
    value = fields.get(name)
    if value is None:
        return default
    if type(value) not in (int, float) or not least <= value <= most:
        raise bad(name, value, f"a number from {least:g} to {most:g}")
    return float(value)


def positive(fields: Mapping[str, Any], name: str, most: float, default: float) -> float:
    value = number(fields, name, 0, most, default)
    if value == 0:
        raise bad(name, value, f"a number over 0, at most {most:g}")
    return value


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
