"""What every process logs, in one of two forms: lines for people, or one JSON object a line for machines.

Log calls name what they are about by `extra=about(...)`, never within the message. A key is blotted out wherever it
stands, and nobody logs what a user has written: a dead letter has the record itself.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

FIELDS = ("reply", "conversation", "attempt", "error")
_SECRET = re.compile(r"\blw-[0-9A-Za-z_-]{6,}|(?i:(?<=bearer )|(?<=basic ))\S+")


def about(
    *, reply: str | None = None, conversation: str | None = None, attempt: int | None = None, error: object = None
) -> dict[str, Any]:
    """The `extra` of a log call: what it is about, as far as it is known."""
    given = {"reply": reply, "conversation": conversation, "attempt": attempt, "error": error}
    return {name: value for name, value in given.items() if value is not None}


def start_logging(process: str, form: str, stream: TextIO | None = None) -> None:
    """Sends all logs of this process to `stream`, by default standard error, in the form that LANEWAY_LOG names."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(process) if form == "json" else Lines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class Lines(logging.Formatter):
    """For people: time, thread, level, message, then `name=value` of what it is about."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(threadName)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return " ".join([super().formatMessage(record), *(f"{name}={value}" for name, value in _fields(record))])

    def format(self, record: logging.LogRecord) -> str:
        return without_keys(super().format(record))


class JsonLines(logging.Formatter):
    """For machines: an error's traceback is part of the one line."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": self._process,
            "thread": record.threadName,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value if isinstance(value, int) else str(value) for name, value in _fields(record)}
        if record.exc_info:
            line.setdefault("error", repr(record.exc_info[1]))
            line["traceback"] = self.formatException(record.exc_info)
        return without_keys(json.dumps(line, ensure_ascii=False))


def without_keys(text: str) -> str:
    return _SECRET.sub("***", text)


def _fields(record: logging.LogRecord) -> list[tuple[str, Any]]:
    return [(name, value) for name in FIELDS if (value := getattr(record, name, None)) is not None]
