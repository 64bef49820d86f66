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
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens a reply may have.")] = 300,
    temperature: Annotated[float | None, typer.Option(min=0, max=2, help="0 is greedy; else the model's own.")] = None,
    url: Annotated[list[str] | None, typer.Option(help="Edge; give it again for one to resume on.")] = None,
    key: Annotated[str | None, typer.Option(help="API key.", show_default=False)] = None,
) -> None:
    """Chat with the model. Tokens appear as they come, and a broken stream goes on at the next edge.

    Without --url and --key the edges and the key of the running `laneway up` are used. Ctrl-C stops a
    reply; Ctrl-D ends the conversation.
    """
    from infra.chat import Chat, ChatError

    edges, api_key = reach(url, key)
    asked = {"model": model, "max_tokens": max_tokens, "temperature": temperature}
    options = {name: value for name, value in asked.items() if value is not None}
    talk = Chat(edges, api_key, conversation or f"chat-{uuid.uuid4().hex[:12]}", options)
    with talk:
        try:
            if text is not None:
                tell_end(talk.say(text, show, note), max_tokens)
                note(f"go on with --conversation {talk.conversation}")
            else:
                loop(talk, max_tokens)
        except ChatError as error:
            fail(error)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def reach(url: list[str] | None, key: str | None) -> tuple[tuple[str, ...], str]:
    """The edges and the key to use: those given, else the running stack's."""
    from infra.local.state import DataFolder

    for edge in url or ():
        if not edge.startswith(("http://", "https://")):
            fail(f"--url {edge}: expected http://host:port or https://host:port")
    if key and not key.isascii():
        fail("--key: expected ASCII characters")
    if url and key:
        return tuple(edge.rstrip("/") for edge in url), key
    try:
        up = DataFolder(load(UpConfig, os.environ).data).running()
    except NothingRuns as error:
        fail(error, 3)
    if not up.edges:
        fail("laneway is still starting; `laneway status` says when it is ready")
    return tuple(edge.rstrip("/") for edge in url or up.edges), key or up.api_key


def loop(talk: Chat, max_tokens: int) -> None:
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
            tell_end(talk.say(line, show, note), max_tokens)
        except KeyboardInterrupt:
            say("\n(stopped)")
        except ChatError as error:
            typer.echo(f"laneway: {error}", err=True)


def tell_end(how: str, max_tokens: int) -> None:
    if how == "length":
        note(f"cut at {max_tokens} tokens; --max-tokens allows more")


def note(text: str) -> None:
    if text:
        typer.echo(f"({text})", err=True)


def show(text: str) -> None:
    typer.echo(text, nl=False)


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel="On this machine")(chat)
