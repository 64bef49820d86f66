"""The command line, `laneway`: this file gathers the commands, `infra/commands/` has them.

A command imports what it runs only when it runs, so help is quick and each role installs alone.
"""

from __future__ import annotations

import sys

import typer

from infra.commands import bench, chat, local, log, processes
from schemas.settings import SettingError

OURS = frozenset({"schemas", "topics", "streams", "engine", "edge", "infra"})

app = typer.Typer(
    name="laneway",
    help="LLM chat serving as an event-sourced pipeline on Kafka: every token is a numbered record in a durable log.",
    epilog="Start with: laneway up",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
local.register(app)
chat.register(app)
log.register(app)
processes.register(app)
bench.register(app)


def main() -> None:
    try:
        app()
    except SettingError as error:
        sys.exit(f"laneway: {error}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in OURS:
            raise
        sys.exit(f"laneway: {error.name} is not installed; each role has its extra: laneway[local], [edge], [engine]")


if __name__ == "__main__":
    main()
