"""The command line, `laneway`: this file gathers the commands, `infra/commands/` has them.

A command imports what it runs only when it runs, so help is quick and each role installs alone.
"""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated

import typer

from infra.commands import bench, chat, keys, local, log, processes, quotas, store, top
from schemas.settings import SettingError
from topics.errors import TopicsError

OURS = frozenset({"schemas", "topics", "streams", "engine", "edge", "infra"})

app = typer.Typer(
    name="laneway",
    help="LLM chat serving as an event-sourced pipeline on Kafka: every token is a numbered record in a durable log.",
    epilog="Start with: laneway up",
    add_completion=False,
    pretty_exceptions_enable=False,
)
local.register(app)
chat.register(app)
top.register(app)
keys.register(app)
quotas.register(app)
store.register(app)
log.register(app)
processes.register(app)
bench.register(app)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        typer.echo(f"laneway {metadata.version('laneway')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    try:
        app()
    except SettingError as error:
        sys.exit(f"laneway: {error}")
    except TopicsError as error:
        sys.exit(f"laneway: {error}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in OURS:
            raise
        extras = "laneway[local], [edge], [engine], [cassandra]"
        sys.exit(f"laneway: {error.name} is not installed; each role has its extra: {extras}")


if __name__ == "__main__":
    main()
