"""A Picture as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from infra.top import Picture

STATE_STYLES = {"RUNNING": "green", "FAILED": "red", "SHED": "red", "RESUMING": "yellow", "PREEMPTED": "yellow"}


def as_tables(picture: Picture) -> RenderableType:
    """Every part of the picture, those that have nothing to show with a dash."""
    parts: list[RenderableType] = [
        _table(
            "lanes", ("tier", "queued", "oldest"), ((x.tier, _number(x.queued), _s(x.age_s)) for x in picture.lanes)
        ),
        _table(
            "replicas",
            ("replica", "state", "running", "waiting", "free blocks", "tok/s", "p99 step", "last beat"),
            (
                (
                    f"{x.beat.pool}/{x.beat.slot}",
                    x.beat.state,
                    f"{x.beat.running} of {x.beat.capacity}",
                    str(x.beat.waiting),
                    str(x.beat.free_blocks),
                    f"{x.tokens_per_s:.1f}",
                    f"{x.beat.p99_step_ms:.0f} ms",
                    _s(x.silent_s),
                )
                for x in picture.replicas
            ),
        ),
        _table(
            "stages",
            ("stage", "process", "partitions", "lag", "commit age"),
            ((x.stage, x.process, f"{x.partitions:.0f}", _s(x.lag_s), _s(x.commit_age_s)) for x in picture.stages),
        ),
        _table(
            "edges",
            ("edge", "streams", "last beat"),
            ((x.incarnation, str(x.streams), _s(x.silent_s)) for x in picture.edges),
        ),
        _table(
            "newest replies",
            ("reply", "state", "tokens", "age", "conversation"),
            ((x.id, x.state.value, str(x.tokens), _s(x.age_s), x.conversation) for x in picture.replies),
        ),
    ]
    return Group(*parts, *(Text(f"missing: {reason}", style="bold red") for reason in picture.missing))


def _table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for n, name in enumerate(columns):
        table.add_column(name, style=None if n else "cyan", header_style="dim", no_wrap=n == 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=STATE_STYLES.get(cell, "")) for cell in row))
    if not table.row_count:
        table.add_row("-")
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _s(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"
