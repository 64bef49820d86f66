"""Commands that each run one process of a cell in the foreground: stages, a replica, an edge.

They import their package when they run, so an edge installs without torch and a stage without a web server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

STAGES = {
    "intake": "Turn messages into accepted replies: one per Idempotency-Key, history within the context.",
    "router": "Send each request to the replica with the most room, highest tier first. One active per pool.",
    "settlement": "Write one usage record and the assistant's turn for every reply that ends.",
    "history": "Write saved turns to the conversation store.",
    "supervisor": "Fence dead replicas and continue their replies, end late ones, abort what nobody needs.",
}


def run_stages(names: list[str]) -> None:
    from streams.runtime.main import run

    raise typer.Exit(run(names))


def stages(
    names: Annotated[list[str], typer.Argument(help=f"Any of: {', '.join(STAGES)}.", show_default=False)],
) -> None:
    """Run several stages in one process, as a small machine does."""
    if unknown := sorted(set(names) - set(STAGES)):
        raise typer.BadParameter(f"{', '.join(unknown)}: expected any of {', '.join(STAGES)}")
    run_stages(names)


def replica(slot: Annotated[int, typer.Option(min=0, help="The lane partition it serves, its own alone.")]) -> None:
    """Run one model replica: requests from its lane in, numbered tokens into the reply log."""
    from engine.main import run

    raise typer.Exit(run(slot))


def edge(
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="The TCP port; else LANEWAY_PORT.")] = None,
) -> None:
    """Run one edge: the HTTP API and SSE streams. LANEWAY_EDGE_PARTITIONS sets its homes."""
    from edge.main import run

    run(port)


def register(app: typer.Typer) -> None:
    panel = "One process each"
    app.command(rich_help_panel=panel)(stages)
    for name, what in STAGES.items():
        app.command(name, help=what, rich_help_panel=panel)(alone(name))
    app.command(rich_help_panel=panel)(replica)
    app.command(rich_help_panel=panel)(edge)


def alone(name: str) -> Callable[[], None]:
    def stage() -> None:
        run_stages([name])

    return stage
