"""The parts of the README that are made from the code: topics, settings, commands, the reply's lifecycle.

`make docs` writes them between their markers; a test fails when they are not what is committed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer.main

import edge.metrics
import engine.metrics
import streams.runtime.metrics
from edge.config import EdgeConfig, TokenConfig
from engine.config import ReplicaConfig
from infra.cli import app
from infra.config import KeysConfig, UpConfig
from schemas.reply import MOVES, State
from schemas.settings import Setting, described
from streams.config import StreamsConfig
from topics.catalog import Sizes, Topic, catalog
from topics.config import KafkaConfig
from topics.ready import READY_FILE
from topics.store.config import StoreConfig
from topics.telemetry.config import TelemetryConfig
from topics.telemetry.metrics import PROCESS, Metric

README = Path(__file__).parent.parent / "README.md"

CONFIGS = {
    "laneway up": UpConfig,
    "laneway keys": KeysConfig,
    "every process": KafkaConfig,
    "stages, replica, edge": TelemetryConfig,
    "stages, edge, store": StoreConfig,
    "stages": StreamsConfig,
    "replica": ReplicaConfig,
    "edge": EdgeConfig,
    "edge, for JWTs": TokenConfig,
}


def settings() -> str:
    """One row a setting and process; the default is a process's own."""
    ready = Setting(READY_FILE, "", "text", "file that gets the process's pid once it is ready", False)
    rows = [(who, setting) for who, config in CONFIGS.items() for setting in described(config)]
    rows.append(("stages, replica", ready))
    lines = ["| setting | read by | default | meaning |", "|---|---|---|---|"]
    for who, setting in rows:
        lines.append(f"| `{setting.key}` | {who} | {_default(setting.default)} | {setting.doc}; {setting.expected} |")
    return "\n".join(lines)


def _default(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else str(value)
    return f"`{text}`" if text else ""


METRICS: dict[str, tuple[Metric[Any], ...]] = {
    "each": PROCESS,
    "edge": edge.metrics.METRICS,
    "stages": streams.runtime.metrics.METRICS,
    "replica": engine.metrics.METRICS,
}


def metrics() -> str:
    lines = ["| metric | of | type | labels | meaning |", "|---|---|---|---|---|"]
    for who, metrics in METRICS.items():
        for metric in metrics:
            labels = ", ".join(metric.labels)
            lines.append(f"| `{metric.name}` | {who} | {metric.kind.__name__.lower()} | {labels} | {metric.doc} |")
    return "\n".join(lines)


def topics() -> str:
    lines = ["| topic | key | partitions | kept | records | why |", "|---|---|---|---|---|---|"]
    for topic in catalog(Sizes()):
        records = ", ".join(event.__name__ for event in topic.events)
        name = topic.name.replace(".main", ".&lt;pool&gt;")
        lines.append(f"| `{name}` | {topic.key} | {topic.partitions} | {_kept(topic)} | {records} | {topic.why} |")
    return "\n".join(lines)


def _kept(topic: Topic) -> str:
    if topic.retention_ms is None:
        return "compacted"
    minutes = topic.retention_ms // 60_000
    for unit, size in (("d", 1440), ("h", 60)):
        if minutes % size == 0:
            return f"{minutes // size} {unit}"
    return f"{minutes} min"


def commands() -> str:
    group = typer.main.get_command(app)
    lines = ["| command | does |", "|---|---|"]
    for name, command in sorted(_leaves("laneway", group)):
        lines.append(f"| `{name}` | {(command.help or '').strip().splitlines()[0]} |")
    return "\n".join(lines)


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """The commands below one, each with its words; itself when it has none."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for word, below in command.commands.items():
        yield from _leaves(f"{name} {word}", below)


def lifecycle() -> str:
    """A Mermaid diagram of MOVES; records that leave the state as it is are not drawn."""
    drawn: dict[tuple[State, State], list[str]] = {}
    for record, moves in MOVES.items():
        for source, target in moves.items():
            if source is not target:
                drawn.setdefault((source, target), []).append(record.__name__)
    lines = ["```mermaid", "stateDiagram-v2"]
    for (source, target), records in drawn.items():
        start = "[*]" if source is State.UNSEEN else source.value
        lines.append(f"    {start} --> {target.value}: {', '.join(records)}")
    lines += [f"    {state.value} --> [*]" for state in State if state.ended]
    return "\n".join([*lines, "```"])


BLOCKS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "settings": settings,
    "metrics": metrics,
    "topics": topics,
    "lifecycle": lifecycle,
}


def rendered(text: str) -> str:
    """`text` with every block made anew. Raises ValueError if a block's markers are missing."""
    for name, make in BLOCKS.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"{README.name} has no block between <!-- {name} --> and <!-- /{name} -->")
        text = pattern.sub(_filled(make()), text)
    return text


def _filled(block: str) -> Callable[[re.Match[str]], str]:
    return lambda found: f"{found[1]}{block}\n{found[2]}"


if __name__ == "__main__":
    README.write_text(rendered(README.read_text()))
