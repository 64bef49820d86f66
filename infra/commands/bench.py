"""Commands that measure."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.commands.terminal import fail, say

if TYPE_CHECKING:
    from rich.progress import Progress

    from engine.engine import Engine
    from infra.bench_engine import Figures

CHECKOUT = Path(__file__).parents[2]
PEERS = CHECKOUT / "tests" / "benchmarks" / "peers"
WORKLOADS = ("shared", "mix", "long", "pressed")


def bench_engine(
    workload: Annotated[
        str, typer.Option(help="shared: all at once; mix: lengths and arrivals at random; long; pressed.")
    ] = "shared",
    requests: Annotated[str, typer.Option(help="How many; one run each.")] = "1,8,16",
    output: Annotated[int, typer.Option(min=2, help="Tokens of each reply.")] = 64,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for scripts.")] = False,
    peer: Annotated[str, typer.Option(help="Measure another engine in turn: vllm, llama.cpp.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="With --peer: how often each runs.")] = 5,
) -> None:
    """Measure the engine alone: N requests at once, 320 prompt tokens of which 256 are shared, greedy.

    `--workload mix` draws lengths and arrivals at random; `long` compares the first token of a cached conversation of
    2,000 tokens and 300 new ones with that of a cold one; `pressed` runs with half the blocks of keys and values that
    the requests want, and beside it with all; `--peer` installs another engine in an environment of its
    own, and writes a table and a plot to .laneway/peers/figures.
    It runs as a replica's settings say (LANEWAY_MODEL, LANEWAY_THREADS, LANEWAY_MAX_RUNNING, ...), without Kafka.
    """
    from engine.config import ReplicaConfig
    from engine.errors import EngineError
    from engine.main import make_engine
    from infra.bench_engine import Continued, Workload, measure, time_to_first_token
    from schemas.settings import load
    from schemas.tokenizer import ChatTokenizer

    if peer:
        _beside(peer, "--requests", requests, "--rounds", str(rounds), "--output", str(output))
        return
    if workload not in WORKLOADS:
        fail(ValueError(f"--workload {workload!r}: expected one of {', '.join(WORKLOADS)}"))
    config = load(ReplicaConfig, os.environ)
    try:
        counts = [int(word) for word in requests.split(",")]
        tokenizer = ChatTokenizer.load(config.model)
        engine = make_engine(config, tokenizer)
    except (OSError, ValueError, EngineError) as error:
        fail(error)
    where = {"model": tokenizer.name, "machine": machine(), "fingerprint": engine.fingerprint}
    measure(engine, Workload(1, 64, 0, 4), tokenizer.vocabulary, lambda _: None)
    if workload == "long":
        with _progress(as_json) as progress:
            task = progress.add_task("3 long prompts", total=3)
            seconds = time_to_first_token(
                engine, Continued(), tokenizer.vocabulary, lambda prompts: progress.update(task, completed=prompts)
            )
        _report_long(seconds, where, as_json)
        return
    with _progress(as_json) as progress:
        if workload == "pressed":
            figures = []
            for count in counts:
                for blocks in (Workload(count, output=output).blocks * share // 2 for share in (2, 1)):
                    engine = make_engine(replace(config, kv_blocks=blocks, max_running=count), tokenizer)
                    figures.append(_run(engine, progress, workload, count, output, tokenizer.vocabulary))
        else:
            figures = [_run(engine, progress, workload, count, output, tokenizer.vocabulary) for count in counts]
    _report(figures, where, as_json)


def _beside(*arguments: str) -> None:
    """tests/benchmarks/peers, which no installed package has."""
    if not (PEERS / "__main__.py").exists():
        fail(f"--peer: no {PEERS}; it is measured from a checkout of Laneway's repository")
    done = subprocess.run([sys.executable, "-m", "tests.benchmarks.peers", *arguments], cwd=CHECKOUT, check=False)
    raise typer.Exit(done.returncode)


def _run(engine: Engine, progress: Progress, workload: str, count: int, output: int, vocabulary: int) -> Figures:
    from infra.bench_engine import Mix, Workload, run

    all_at_once = [(0, one) for one in Workload(count, output=output).sequences(vocabulary)]
    arrivals = Mix(count).arrivals(vocabulary) if workload == "mix" else all_at_once
    total = sum(sequence.sampling.max_tokens for _, sequence in arrivals)
    task = progress.add_task(f"{count} {workload}", total=total)
    return run(engine, arrivals, lambda tokens: progress.update(task, completed=tokens))


def _report_long(seconds: tuple[float, float], where: dict[str, str], as_json: bool) -> None:
    cold, cached = seconds
    if as_json:
        say(json.dumps({**where, "cold_first_token": cold, "cached_first_token": cached}))
        return
    say(f"{where['model']} on {where['machine']}, {where['fingerprint']}")
    say(f"first token, cold: {1000 * cold:,.0f} ms; cached: {1000 * cached:,.0f} ms; {cached / cold:.0%}")


def _progress(quiet: bool) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=Console(stderr=True), disable=quiet)


def _report(figures: list[Figures], where: dict[str, str], as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if as_json:
        say(json.dumps({**where, "peak_memory_mib": memory, "runs": [asdict(run) for run in figures]}))
        return
    table = Table(title=f"{where['model']} on {where['machine']}", caption=f"{where['fingerprint']}, peak {memory} MiB")
    names = "at once", "first token p50 / p99", "between tokens p50 / p99", "tok/s", "prefix hits", "preemptions"
    for name in names:
        table.add_column(name, justify="right")
    for run in figures:
        times = [f"{1000 * p50:,.0f} / {1000 * p99:,.0f} ms" for p50, p99 in (run.first_token, run.between_tokens)]
        rest = f"{run.tokens_per_s:,.1f}", f"{run.hit_rate:.0%}", str(run.preemptions)
        table.add_row(str(run.requests), *times, *rest)
    Console(width=max(120, Console().width)).print(table)


def machine() -> str:
    """The processor's name, as far as the system tells it, its cores and how busy they were."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        name = names[0] if names else name
    return f"{name}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel="Measuring")(bench_engine)
