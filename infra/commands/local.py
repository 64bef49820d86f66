"""Commands for the stack on this machine: up, down, reset, status."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import Annotated

import typer

from infra.commands.terminal import fail, say
from infra.config import UpConfig
from infra.local.errors import AlreadyRunning, LocalError, NothingRuns
from schemas.settings import load

NOTHING_RUNS = 3
DRAIN_TIMEOUT = 120.0


def up(
    mini: Annotated[bool, typer.Option("--mini", help="Run a replica of the model for past limits, too.")] = False,
    store: Annotated[str, typer.Option(help="sqlite or cassandra; else LANEWAY_STORE.", show_default=False)] = "",
) -> None:
    """Run everything on this machine: Kafka, the stages, a model replica and two edges.

    The first run downloads Kafka (43 MB) and a small chat model (98 MB) and creates an API key. Records,
    keys and logs live in LANEWAY_DATA (.laneway) and are there again at the next start. With
    LANEWAY_KAFKA=host:port your own cluster is used. Ctrl-C drains and stops.
    """
    from infra.local.up import up as run_up

    try:
        environ = os.environ | ({"LANEWAY_STORE": store} if store else {})
        config = load(UpConfig, environ)
        run_up(replace(config, mini=mini or config.mini), environ, say)
    except LocalError as error:
        fail(error)


def down() -> None:
    """Stop the running `laneway up`: streams end, then the stages, then Kafka."""
    from infra.local.state import DataFolder, end

    try:
        running = DataFolder(load(UpConfig, os.environ).data).running()
    except NothingRuns as error:
        fail(error, NOTHING_RUNS)
    if not end(running, DRAIN_TIMEOUT):
        fail(f"pid {running.pid} still drains after {DRAIN_TIMEOUT:.0f} s; run this again to cut it short")
    say("stopped")


def reset(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Also delete the model and Kafka's jars.")] = False,
) -> None:
    """Delete the data folder's records, conversations, keys and logs. Models and jars stay."""
    from infra.local.state import DataFolder

    folder = DataFolder(load(UpConfig, os.environ).data)
    if not folder.path.exists():
        fail(f"there is no data folder at {folder.path}", NOTHING_RUNS)
    try:
        with folder.lock():
            if not yes:
                typer.confirm(f"Delete all conversations, records and keys in {folder.path}?", abort=True)
            for path in folder.disposable(everything):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    except AlreadyRunning as error:
        fail(error)
    say(f"{folder.path} is empty" if everything else f"{folder.path} is as new; models and jars are kept")


def status(as_json: Annotated[bool, typer.Option("--json", help="One JSON object for scripts.")] = False) -> None:
    """Show what runs and whether it is ready. Exit status 0: ready; 1: not ready; 3: nothing runs."""
    from infra.local.state import DataFolder
    from infra.local.status import as_text, look

    folder = DataFolder(load(UpConfig, os.environ).data)
    try:
        found = look(folder.running())
    except NothingRuns as error:
        fail(error, NOTHING_RUNS)
    say(found.as_json() if as_json else as_text(found))
    raise typer.Exit(0 if found.ready else 1)


def register(app: typer.Typer) -> None:
    for command in (up, down, status, reset):
        app.command(rich_help_panel="On this machine")(command)
