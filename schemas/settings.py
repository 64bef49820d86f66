"""Settings: environment variables in, one frozen dataclass per process out.

A field declared with `setting(...)` names its variable, its default and its meaning; `load` reads
them once at the start and stops the process with key, value and expected type when one is wrong.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class SettingError(ValueError):
    """A setting has a value that cannot be used. A retry does not help: the operator must change it."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """One documented variable; `secret` values are never printed."""

    key: str
    default: object
    expected: str
    doc: str
    secret: bool


def setting(key: str, *, default: Any, doc: str, secret: bool = False) -> Any:
    """A dataclass field read from the environment variable `key`."""
    return dataclasses.field(default=default, repr=not secret, metadata={"key": key, "doc": doc, "secret": secret})


def parse_bool(text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    return words[text.lower()]


def parse_partitions(text: str) -> tuple[int, ...]:
    """`0-7,9` -> (0, 1, ..., 7, 9)."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        span = range(int(first), int(last if dash else first) + 1)
        if not span:
            raise ValueError(text)
        found.update(span)
    return tuple(sorted(found))


PARSERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    str: ("text", str),
    int: ("an integer", int),
    float: ("a number", float),
    bool: ("true or false", parse_bool),
    Path: ("a path", Path),
    Path | None: ("a path", lambda text: Path(text) if text else None),
    tuple[int, ...]: ("partitions such as 0-7 or 0,3,5", parse_partitions),
    tuple[str, ...]: ("words separated by commas", lambda text: tuple(w.strip() for w in text.split(",") if w.strip())),
}


def load(cls: type[T], environ: Mapping[str, str]) -> T:
    """An instance of the dataclass `cls` from `environ`.

    Raises SettingError for a value that does not parse, or that `cls.__post_init__` refuses.
    """
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        key = field.metadata.get("key")
        text = environ.get(key) if key else None
        if text is None:
            continue
        expected, parse = PARSERS[hints[field.name]]
        try:
            values[field.name] = parse(text)
        except (ValueError, KeyError):
            shown = "***" if field.metadata["secret"] else repr(text)
            raise SettingError(f"{key}={shown}: expected {expected}") from None
    return cls(**values)


def described(cls: type) -> Iterator[Setting]:
    """The settings of a config class, for the README's table and the test that compares the two."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if key := field.metadata.get("key"):
            expected, _ = PARSERS[hints[field.name]]
            yield Setting(key, field.default, expected, field.metadata["doc"], field.metadata["secret"])
