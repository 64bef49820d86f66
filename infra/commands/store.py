"""Commands for the conversation store: its tables, its way back from the log, what it has of a user, and its end."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from infra.commands.log import cluster, running
from infra.commands.terminal import fail, say
from schemas.ids import ConversationId, UserId
from schemas.settings import load
from topics.errors import TopicsError
from topics.store.config import StoreConfig
from topics.store.contract import Store

if TYPE_CHECKING:
    from topics.store.rebuild import Progress, Turns

T = TypeVar("T")
SHOWN = 20

store = typer.Typer(name="store", help="The conversation store.", no_args_is_help=True)
users = typer.Typer(name="users", help="Users and what they have said.", no_args_is_help=True)


@store.command()
def migrate(
    replication: Annotated[
        str, typer.Option(help="Copies of a keyspace that is made: 3, or by datacenter, eu:3,us:3.")
    ] = "1",
) -> None:
    """Make the store's tables, or take them to this version. To be run before a new version of Laneway starts."""
    config = named()
    if not config.is_cassandra:
        opened(config).close()
        say(f"{config.store}: as this version needs it")
        return
    from topics.store.cassandra import migrate as migrate_to

    try:
        before, now = migrate_to(config, copies(replication))
    except TopicsError as error:
        fail(error)
    say(f"{config.store}: schema version {now}{f', before it was {before}' if before != now else ', as before'}")


@store.command()
def rebuild() -> None:
    """Save all that the topic turns still holds, as after the store was lost. History may run meanwhile."""
    from topics.store.rebuild import rebuild as rebuilt

    with closing(opened(named())) as kept:
        seen = shown("rebuilding", lambda turns, progress: rebuilt(turns, kept, progress))
    say(f"{seen.saved} of {seen.records} records saved, {seen.bad} could not be read")


@store.command()
def verify() -> None:
    """Compare the store with the topic turns. Exit status 0: they agree; 1: they do not.

    What is on its way while it runs may be told as missing: run it again, or while nothing is said.
    """
    from topics.store.rebuild import verify as verified

    with closing(opened(named())) as kept:
        seen, found = shown("comparing", lambda turns, progress: verified(turns, kept, progress))
    for difference in found[:SHOWN]:
        say(str(difference))
    if len(found) > SHOWN:
        say(f"... and {len(found) - SHOWN} more")
    say(f"{seen.saved} of {seen.records} records compared, {seen.bad} could not be read; {len(found)} differences")
    raise typer.Exit(1 if found else 0)


def export(
    user: Annotated[str, typer.Argument(help="Whose conversations.", show_default=False)],
    conversation: Annotated[str, typer.Option(help="One conversation; all unless given.")] = "",
    output: Annotated[str, typer.Option(help="The file to write; else standard output.")] = "",
) -> None:
    """Write a user's conversations as one JSON document, oldest message first."""
    from topics.store.export import exported_conversation, exported_user

    who = UserId(user)
    with closing(opened(named())) as kept, writing(output) as write:
        one = ConversationId(conversation)
        pieces = exported_conversation(kept, who, one) if conversation else exported_user(kept, who)
        first = next(pieces, None)
        if first is None:
            fail(f"{user} has no conversation {conversation!r}")
        write(first)
        for piece in pieces:
            write(piece)


@users.command()
def delete(
    user: Annotated[str, typer.Argument(help="Whose conversations.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete all of a user's conversations, and wait until the store has none. Keys stay: see `laneway keys revoke`."""
    from infra.users import delete_user
    from schemas.codec import Codec
    from topics.kafka import KafkaLog

    kafka = cluster()
    with closing(opened(named())) as kept:
        if not yes:
            typer.confirm(f"Delete all conversations of {user}? (--yes does not ask)", abort=True)
        count = delete_user(KafkaLog(kafka), kafka.sizes, Codec(), kept, UserId(user))
    say(f"{count} conversations of {user} are deleted" if count else f"{user} has no conversations")


def named() -> StoreConfig:
    """LANEWAY_STORE's store, or that of the running `laneway up`."""
    config = load(StoreConfig, os.environ)
    if "LANEWAY_STORE" in os.environ:
        return config
    up = running()
    return replace(config, store=up.store) if up and up.store else config


def opened(config: StoreConfig) -> Store:
    from topics.store.opening import open_store

    return open_store(config, at_once=True)


def copies(text: str) -> str:
    """A keyspace's replication as Cassandra reads it. Raises BadParameter."""
    if re.fullmatch(r"[1-9]\d?", text):
        return f"{{'class': 'SimpleStrategy', 'replication_factor': {text}}}"
    if re.fullmatch(r"[\w-]+:[1-9]\d?(,[\w-]+:[1-9]\d?)*", text):
        centers = ", ".join(f"'{name}': {count}" for name, _, count in (one.partition(":") for one in text.split(",")))
        return f"{{'class': 'NetworkTopologyStrategy', {centers}}}"
    raise typer.BadParameter(f"--replication {text}: expected a number such as 3, or eu:3,us:3")


def shown(what: str, work: Callable[[Turns, Progress], T]) -> T:
    """Does work on the topic `turns` under a progress bar, on standard error where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from schemas.codec import Codec
    from topics.kafka import KafkaLog
    from topics.schemas import Decoder
    from topics.store.rebuild import Turns

    log = KafkaLog(cluster())
    turns = Turns(log, Decoder(log, Codec()))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=turns.count())
        return work(turns, lambda count: bar.advance(task, count))


@contextmanager
def writing(path: str) -> Iterator[Callable[[str], object]]:
    """A file that is there only once it is whole, or standard output."""
    if not path:
        yield sys.stdout.write
        return
    fresh = Path(f"{path}.part")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            yield file.write
        fresh.replace(path)
    except OSError as error:
        fail(f"{path!r} cannot be written: {error.strerror}")
    finally:
        with suppress(OSError):
            fresh.unlink()  # of an export that broke off


def register(app: typer.Typer) -> None:
    app.add_typer(store, rich_help_panel="Conversations")
    app.add_typer(users, rich_help_panel="Conversations")
    app.command(rich_help_panel="Conversations")(export)
