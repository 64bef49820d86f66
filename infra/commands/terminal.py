"""How commands speak: progress and results on standard output, one clear message when one cannot go on."""

from __future__ import annotations

from typing import NoReturn

import typer


def say(text: str) -> None:
    typer.echo(text)


def named(name: str, what: str = "user", least: int = 1) -> None:
    """Ends the command if that is no name that a record can have."""
    from streams.bounds import check_name

    try:
        check_name(what, name, least)
    except ValueError as error:
        fail(error)


def fail(message: object, status: int = 1) -> NoReturn:
    """Ends the command with the message on standard error."""
    typer.echo(f"laneway: {message}", err=True)
    raise typer.Exit(status)
