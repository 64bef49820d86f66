"""How commands speak: progress and results on standard output, one clear message when one cannot go on."""

from __future__ import annotations

from typing import NoReturn

import typer


def say(text: str) -> None:
    typer.echo(text)


def fail(message: object, status: int = 1) -> NoReturn:
    """Ends the command with the message on standard error."""
    typer.echo(f"laneway: {message}", err=True)
    raise typer.Exit(status)
