"""A run as lines to read: virtual time, who, what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from schemas.events import ReplicaBeat, SupervisorBeat
from tests.simulation.run import Outcome
from tests.simulation.surroundings import CODEC
from topics.log import Append

MOST = 200


def lines(outcome: Outcome) -> Iterator[str]:
    for at_ms, who, what in outcome.trace:
        if (text := _text(what)) is not None:
            yield f"{at_ms / 1000:8.3f} {who:14} {text}"
    yield from (f"{'':8} {'end':14} {end}" for end in outcome.ends)
    yield f"seed {outcome.plan.seed}: {len(outcome.violations)} violations, digest {outcome.digest[:16]}"
    yield from (f"  {violation}" for violation in outcome.violations)


def _text(what: object) -> str | None:
    if not isinstance(what, Append):
        return str(what)
    event = CODEC.decode(what.value) if what.value is not None else None
    if isinstance(event, ReplicaBeat | SupervisorBeat):
        return None
    key = (what.key or b"").decode("utf-8", "replace")
    return f"{what.place.topic}[{what.place.partition}] {_short(key)} {_event(event)}"


def _event(event: object) -> str:
    if not is_dataclass(event):
        return "tombstone"
    shown = ", ".join(f"{f.name}={_value(getattr(event, f.name))}" for f in fields(event))
    return f"{type(event).__name__}({shown})"[:MOST]


def _value(value: object) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) and len(value) > 8 else _short(str(value))


def _short(text: str) -> str:
    """Reply ids are long, and differ in their last part."""
    head, separator, tail = text.partition("/")
    return f"..{head[-17:]}{separator}{tail}" if len(head) == 48 and head.startswith("r") else text
