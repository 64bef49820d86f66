"""Command `top`: the cell as it lives, in the terminal."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from infra.commands.log import cluster
from infra.commands.terminal import fail
from infra.config import UpConfig
from infra.local.errors import NothingRuns
from schemas.settings import load
from topics.errors import TopicsError

if TYPE_CHECKING:
    from infra.top import Picture, Watched

EVERY_S = 1.0
CONNECT_S = 3.0


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one picture and leave.")] = False,
) -> None:
    """Watch queues, replicas, stages, edges and the newest replies, live. Ctrl-C leaves.

    Heartbeats and replies are read from the log, so it works from any machine that reaches Kafka; queues and stages
    from the metrics ports of the running `laneway up`.
    """
    from rich.console import Console
    from rich.live import Live

    from infra.top import PAST_MS, Watched
    from infra.top_view import as_tables
    from schemas.codec import Codec
    from topics.kafka import KafkaLog

    config = cluster()
    if not any(map(answers, config.kafka.split(","))):
        fail(
            f"no broker answers at {config.kafka}: `laneway status` says what runs here; LANEWAY_KAFKA names a cluster"
        )
    console = Console() if os.isatty(1) else Console(width=120)
    try:
        watched = Watched(KafkaLog(config), Codec())
        watched.catch_up(time.time_ns() // 1_000_000 - PAST_MS)
        if once:
            console.print(as_tables(taken(watched)))
            return
        with contextlib.suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(as_tables(taken(watched)), refresh=True)
                until = time.monotonic() + EVERY_S
                while (left := until - time.monotonic()) > 0:
                    watched.read(left)
    except TopicsError as error:
        fail(error)


def taken(watched: Watched) -> Picture:
    """The picture of this moment."""
    from infra.top import Picture, lanes, parse, stages

    urls = metrics_urls()
    texts, missing = {}, []
    for name, url in urls.items():
        if body := asked(url):
            texts[name] = parse(body)
        else:
            missing.append(f"{name}: {url}/metrics does not answer")
    folded = watched.folded
    return Picture(
        lanes(texts.values()), folded.replicas(), stages(texts), folded.edges(), folded.replies(), tuple(missing)
    )


def metrics_urls() -> Mapping[str, str]:
    """Where the processes of the running `laneway up` can be asked; none where it does not run."""
    from infra.local.state import DataFolder

    try:
        return DataFolder(load(UpConfig, os.environ).data).running().metrics
    except NothingRuns:
        return {}


def asked(url: str) -> str | None:
    from infra.local.status import get

    body = get(url, "/metrics")
    return body.decode() if body is not None else None


def answers(address: str) -> bool:
    """Whether anybody listens there: a client of Kafka would ask for half a minute."""
    host, _, port = address.strip().rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, ValueError):
        return False
    return True


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel="On this machine")(top)
