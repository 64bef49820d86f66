"""Commands for API keys: add, list, revoke. Edges read the file again within seconds."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from infra.commands.terminal import fail, named, say
from infra.config import KeysConfig
from infra.local.errors import KeysError
from schemas.settings import load

DAY_S = 86_400
PLAN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)

keys = typer.Typer(name="keys", help="API keys: who may call the edges.", no_args_is_help=True)


@keys.command()
def add(
    user: Annotated[str, typer.Argument(help="Whose conversations the key opens.", show_default=False)],
    account: Annotated[str | None, typer.Option(help="Who pays; the user unless given.")] = None,
    plan: Annotated[str, typer.Option(help="free, paid, business, or one of your own.")] = "free",
    note: Annotated[str, typer.Option(help="What the key is for.")] = "",
    days: Annotated[int | None, typer.Option(min=1, help="Days until it expires; for ever unless given.")] = None,
) -> None:
    """Make an API key and print it, this once: the file keeps only its digest."""
    from infra.local.keys import KeyEntry, digest, new_key
    from infra.local.keys import add as add_key
    from streams.allowances import TIER_OF_PLAN

    if not PLAN.fullmatch(plan):
        raise typer.BadParameter(f"--plan {plan!r}: expected a plan's name, such as {', '.join(sorted(TIER_OF_PLAN))}")
    if plan not in TIER_OF_PLAN:
        typer.echo(f"plan {plan} is free until `laneway plans apply` has made it known", err=True)
    named(user)
    named(account or user, "account")
    if not user.strip() or not (account or user).strip():
        raise typer.BadParameter("a user and an account have a name")
    key, now = new_key(), int(time.time())
    expires = None if days is None else now + days * DAY_S
    entry = KeyEntry(digest(key), user, account or user, plan, now, expires, note)
    try:
        add_key(path(), entry)
    except (KeysError, OSError) as error:
        fail(error)
    typer.echo(f"key {entry.id} of {user}, account {entry.account}, plan {plan}; it is not shown again:", err=True)
    say(key)


@keys.command("list")
def list_keys(as_json: Annotated[bool, typer.Option("--json", help="One JSON object for scripts.")] = False) -> None:
    """List the API keys by id, with user, account, plan, dates and note."""
    from rich.console import Console
    from rich.table import Table

    from infra.local.keys import entries

    try:
        found = entries(path())
    except (KeysError, OSError) as error:
        fail(error)
    if as_json:
        say(json.dumps({"keys": [{"id": entry.id} | asdict(entry) for entry in found]}))
        return
    table = Table("id", "user", "account", "plan", "created", "expires", "note")
    for entry in found:
        table.add_row(
            entry.id, entry.user, entry.account, entry.plan, day(entry.created), day(entry.expires), entry.note
        )
    Console(width=max(120, Console().width)).print(table)


@keys.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The id that `laneway keys list` shows.", show_default=False)],
) -> None:
    """Revoke an API key: calls, sessions and running streams with it end within seconds."""
    from infra.local.keys import revoke as revoke_key

    try:
        entry = revoke_key(path(), key_id)
    except (KeysError, OSError) as error:
        fail(error)
    say(f"revoked {entry.id} of {entry.user}")


def path() -> Path:
    config = load(KeysConfig, os.environ)
    return Path(config.keys) if config.keys else config.data / "keys.json"


def day(seconds: int | None) -> str:
    return "" if seconds is None else time.strftime("%Y-%m-%d", time.gmtime(seconds))


def register(app: typer.Typer) -> None:
    app.add_typer(keys, rich_help_panel="On this machine")
