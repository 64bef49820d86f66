"""Commands for quotas: plans for all, limits for one user, and what a user has used."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.commands.log import cluster
from infra.commands.terminal import fail, named, say
from schemas.ids import UserId
from schemas.quota_records import EACH_MODEL, Balance, Limit, LimitSet, Plan, PlansLoaded

if TYPE_CHECKING:
    from infra.asking import Asking

plans = typer.Typer(name="plans", help="Plans: what their users may use.", no_args_is_help=True)
limits = typer.Typer(name="limits", help="Limits of one user, beside the plan.", no_args_is_help=True)

FILE = Annotated[Path | None, typer.Argument(help="A plans file; the shipped one if not given.", show_default=False)]
USER = Annotated[str, typer.Argument(help="The user, as keys and JWTs name them.", show_default=False)]
JSON = Annotated[bool, typer.Option("--json", help="One JSON object for scripts.")]


@plans.command()
def apply(file: FILE = None) -> None:
    """Make the plans of a file hold for every user, in place of those before. Without a file: free, paid, business.

    Takes effect with the next message of each user; no process starts anew. Until the first time nothing is limited.
    """
    loaded = plans_of(file)
    asking = connected()
    asking.write(asking.everywhere(loaded))
    say(f"applied to every partition: {', '.join(plan.name for plan in loaded.plans)}")
    limited = [limit.model for plan in loaded.plans for limit in plan.limits]
    tell_unserved([*limited, *(plan.mini for plan in loaded.plans)], asking.models)


@plans.command()
def show(file: FILE = None, as_json: JSON = False) -> None:
    """Show the plans that hold, or with FILE those that it would make hold."""
    if file is not None:
        found = plans_of(file).plans
    else:
        by_partition = connected().plans()
        if not by_partition:
            fail("no plans hold: nothing is limited until `laneway plans apply`", 3)
        found = next(iter(by_partition.values())).plans
        if len(set(by_partition.values())) > 1 or len(by_partition) < cluster().users:
            typer.echo("laneway: not every partition has these plans (yet): run `laneway plans apply` again", err=True)
    say(json.dumps({"plans": [asdict(plan) for plan in found]}) if as_json else "\n\n".join(map(shown_plan, found)))


@limits.command("set")
def set_limits(
    user: USER,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LIMIT...", help="tokens=100000/5h, replies=3, MODEL:requests=20/1m.", show_default=False
        ),
    ] = None,
    time_zone: Annotated[str, typer.Option(help="Of the user's days and months, such as Europe/Berlin.")] = "",
) -> None:
    """Set a user's own limits, which replace the plan's of their kinds and what was set before."""
    from infra.plans import BadPlans, read_limit
    from streams.allowances import check_limits

    named(user)
    try:
        own = LimitSet(UserId(user), tuple(map(read_limit, words or ())), time_zone)
        check_limits(own.limits, time_zone or "UTC")
    except (BadPlans, ValueError) as error:
        fail(error)
    if not own.limits and not time_zone:
        fail("nothing to set: give limits or --time-zone; `laneway limits clear USER` leaves the plan alone")
    asking = connected()
    asking.write([asking.routes.message(own.user, own)])
    say(f"{user}: {', '.join(map(shown_limit, own.limits)) or 'the limits of the plan'}{zone_words(time_zone)}")
    tell_unserved([limit.model for limit in own.limits], asking.models)


@limits.command()
def clear(user: USER) -> None:
    """Take a user's own limits and time zone back: only those of the plan hold."""
    named(user)
    asking = connected()
    asking.write([asking.routes.message(UserId(user), LimitSet(UserId(user), ()))])
    say(f"{user}: the limits of the plan")


def usage(
    user: USER,
    plan: Annotated[str, typer.Option(help="The plan to reckon by; else the one that the user came with last.")] = "",
    as_json: JSON = False,
) -> None:
    """Show what a user has used, holds for running replies and has left, of every limit."""
    from topics.errors import TopicsError

    named(user)
    named(plan, "plan", least=0)
    try:
        told = connected().usage(UserId(user), plan)
    except TopicsError as error:
        fail(f"the usage of {user!r} is not known: {error}")
    if as_json:
        limits = [balance.shown() for balance in told.balances]
        say(json.dumps({"user": user, "plan": told.plan or None, "time_zone": told.time_zone, "limits": limits}))
        return
    if not told.balances:
        say(f"{user} has no limits")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("model", "limit", "used", "reserved", "left", f"whole again ({told.time_zone})")
    for row in rows(told.balances, told.time_zone):
        table.add_row(*row)
    say(f"{user}, plan {told.plan or 'none'}")
    Console(width=max(120, Console().width)).print(table)


def rows(balances: Iterable[Balance], time_zone: str) -> Iterable[tuple[str, ...]]:
    from streams.windows import zone_of

    for b in balances:
        reset = datetime.fromtimestamp(b.reset_ms / 1000, UTC).astimezone(zone_of(time_zone))
        whole = f"{reset:%Y-%m-%d %H:%M:%S}" if b.reset_ms else ""
        limit = shown_limit(Limit(EACH_MODEL, b.what, b.limit, b.window))
        yield b.model, limit, str(b.used), str(b.reserved), str(b.remaining), whole


def shown_plan(plan: Plan) -> str:
    past = f"past a limit {plan.mini} answers" if plan.mini else "past a limit nothing answers"
    head = f"{plan.name}: tier {plan.tier}, {past}, days and months in {plan.time_zone}"
    counted = f"  {plan.default_max_tokens} tokens are reserved where none are asked for; of a cached one counts "
    return "\n".join((head, f"{counted}{plan.cached_percent}%", *(f"  {shown_limit(limit)}" for limit in plan.limits)))


def shown_limit(limit: Limit) -> str:
    of = "" if limit.model == EACH_MODEL else f"{limit.model}:"
    return f"{of}{limit.what}={limit.most}{f'/{limit.window}' if limit.window else ''}"


def zone_words(time_zone: str) -> str:
    return f", days and months in {time_zone}" if time_zone else ""


def tell_unserved(names: Iterable[str], ask: Callable[[], Collection[str]]) -> None:
    """Says which models are named and not served, as one that is misspelt; `ask` knows which are."""
    from topics.errors import TopicsError

    wanted = sorted(set(names) - {EACH_MODEL, ""})
    try:
        served = ask() if wanted else ()
    except TopicsError as error:
        typer.echo(f"laneway: not known to be served: {', '.join(wanted)}: {error}", err=True)
        return
    if served and (unserved := [name for name in wanted if name not in served]):
        typer.echo(f"laneway: not served: {', '.join(unserved)}; served: {', '.join(served)}", err=True)


def plans_of(file: Path | None) -> PlansLoaded:
    from infra.plans import SHIPPED, BadPlans, read_plans

    try:
        return read_plans(file or SHIPPED)
    except BadPlans as error:
        fail(error)


def connected() -> Asking:
    from infra.asking import Asking

    return Asking(cluster())


def register(app: typer.Typer) -> None:
    panel = "Quotas"
    app.add_typer(plans, rich_help_panel=panel)
    app.add_typer(limits, rich_help_panel=panel)
    app.command(rich_help_panel=panel)(usage)
