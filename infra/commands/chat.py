"""Command `chat`: talk to the running stack from the terminal."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Annotated

import typer

from infra.commands.terminal import fail, say
from infra.config import UpConfig
from infra.local.errors import NothingRuns
from schemas.settings import load

if TYPE_CHECKING:
    from infra.chat import Chat


def chat(
    text: Annotated[str | None, typer.Argument(help="One message; without it a conversation starts.")] = None,
    conversation: Annotated[str | None, typer.Option(help="Go on with this conversation.")] = None,
    model: Annotated[str | None, typer.Option(help="A name that GET /v1/models lists.")] = None,
    url: Annotated[list[str] | None, typer.Option(help="Edge; give it again for one to resume on.")] = None,
    key: Annotated[str | None, typer.Option(help="API key.", show_default=False)] = None,
) -> None:
    """Chat with the model. Tokens appear as they come, and a broken stream goes on at the next edge.

    Without --url and --key the edges and the key of the running `laneway up` are used. Ctrl-C stops a
    reply; Ctrl-D ends the conversation.
    """
    from infra.chat import Chat, ChatError

    edges, api_key = reach(url, key)
    talk = Chat(edges, api_key, conversation or f"chat-{uuid.uuid4().hex[:12]}", model)
    with talk:
        try:
            if text is not None:
                talk.say(text, show)
            else:
                loop(talk)
        except ChatError as error:
            fail(error)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def reach(url: list[str] | None, key: str | None) -> tuple[tuple[str, ...], str]:
    """The edges and the key to use: those given, else the running stack's."""
    from infra.local.state import DataFolder

    if url and key:
        return tuple(url), key
    try:
        up = DataFolder(load(UpConfig, os.environ).data).running()
    except NothingRuns as error:
        fail(error, 3)
    return tuple(url or up.edges), key or up.api_key


def loop(talk: Chat) -> None:
    from infra.chat import ChatError

    say(f"conversation {talk.conversation}; Ctrl-D ends it")
    while True:
        try:
            line = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            say("")
            return
        if not line:
            continue
        try:
            talk.say(line, show)
        except KeyboardInterrupt:
            say("\n(stopped)")
        except ChatError as error:
            typer.echo(f"laneway: {error}", err=True)


def show(text: str) -> None:
    typer.echo(text, nl=False)


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel="On this machine")(chat)
