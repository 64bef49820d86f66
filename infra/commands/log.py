"""Commands that look at the log itself: a reply's records as they are written, and the topics against the catalog."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.commands.terminal import fail, say
from schemas.codec import Codec, CodecError
from schemas.events import unpack_ids
from schemas.ids import ReplyId, has_reply_id_form
from schemas.reply import Reply
from schemas.settings import load
from topics.config import KafkaConfig
from topics.errors import TopicsError
from topics.log import Record
from topics.subscription import Delivery
from topics.tail import Tail

if TYPE_CHECKING:
    from infra.local.state import DataFolder, Up


def tail(
    reply: Annotated[str, typer.Argument(help="A reply's id, such as a POST answers with.", show_default=False)],
    follow: Annotated[bool, typer.Option(help="Go on until the reply ends.")] = True,
) -> None:
    """Print a reply's records from the log, decoded, from the first one on and then live until it ends.

    Each line: milliseconds since the first record, offset, record, what it did (counted, or why it did not), fields.
    """
    from topics.kafka import KafkaLog

    if not has_reply_id_form(reply):
        fail(f"{reply[:80]!r} is no reply id: expected r, 5 hex digits, a dash, 32 hex digits, a dash, 8 hex digits")
    printer = Printer(Reply(ReplyId(reply)), follow)
    try:
        followed = Tail(KafkaLog(cluster()), printer.deliver)
        followed.open(printer.reply.id)
        followed.start(printer.failed)
        printer.done.wait()
        followed.stop()
    except TopicsError as error:
        fail(error)
    if printer.error is not None:
        fail(printer.error)
    if not printer.lines:
        fail(f"the log holds no record of {reply}: it is unknown, or older than the log's retention")


class Printer:
    """Folds and prints what is delivered; `done` once the reply has ended, or all of the past is printed."""

    def __init__(self, reply: Reply, follow: bool) -> None:
        self.reply, self.follow = reply, follow
        self.codec = Codec()
        self.done = threading.Event()
        self.error: BaseException | None = None
        self.lines = 0
        self.began_ms = 0

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            for record in delivery.records:
                say(self._line(record))
                self.lines += 1
            if delivery.failure:
                self.failed(delivery.failure)
            if delivery.live and (self.reply.state.ended or not self.follow or not self.lines):
                self.done.set()

    def failed(self, error: BaseException) -> None:
        self.error = error
        self.done.set()

    def _line(self, record: Record) -> str:
        self.began_ms = self.began_ms or record.timestamp_ms
        place = f"+{record.timestamp_ms - self.began_ms:<7} {record.offset:>8}"
        try:
            event = self.codec.decode(record.value)
        except CodecError as error:
            return f"{place}  {error}"
        verdict = self.reply.apply(record.offset, event)
        shown = " ".join(f"{f.name}={_shown(f.name, getattr(event, f.name))}" for f in fields(event))
        return f"{place}  {type(event).__name__:<16} {verdict.name.lower():<8} {shown}"


def _shown(name: str, value: Any) -> str:
    if name == "ids":
        return ",".join(map(str, unpack_ids(value)))
    return repr(value)


def topics(
    create: Annotated[bool, typer.Option("--create", help="Create what is missing.")] = False,
) -> None:
    """Compare the catalog with the cluster: what is missing, what differs, what of that is dangerous.

    Exit status 0: as the catalog says; 1: something differs or is missing, or the cluster does not answer.
    """
    from topics import admin

    try:
        config = cluster()
        report = admin.ensure(config) if create else admin.inspect(config)
    except TopicsError as error:
        fail(error)
    say(str(report))
    raise typer.Exit(1 if report.missing or report.differences else 0)


def cluster() -> KafkaConfig:
    """LANEWAY_KAFKA's cluster, or that of the running `laneway up`."""
    config = load(KafkaConfig, os.environ)
    if "LANEWAY_KAFKA" in os.environ:
        return config
    if (up := running()) is None:
        fail(f"nothing runs on {data_folder().path}: start it with `laneway up`, or name a cluster by LANEWAY_KAFKA")
    return replace(config, kafka=up.kafka)


def running() -> Up | None:
    """The `laneway up` that runs on this data folder."""
    from infra.local.errors import NothingRuns

    try:
        return data_folder().running()
    except NothingRuns:
        return None


def data_folder() -> DataFolder:
    from infra.config import UpConfig
    from infra.local.state import DataFolder

    return DataFolder(load(UpConfig, os.environ).data)


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel="The log")(tail)
    app.command(rich_help_panel="The log")(topics)
