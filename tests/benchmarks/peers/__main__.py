"""`laneway bench-engine --peer NAME`: our engine and another one in turn, on the same prompts, and the ratios.

Workload W: N requests at once, 320 prompt tokens of which 256 are shared, greedy; same weights, dtype and threads, each
engine in a process of its own. Absolute figures are this machine's. A table and a plot of them go to a folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import asdict, replace
from pathlib import Path

import typer
from rich.console import Console
from rich.markdown import Markdown

from engine.config import ReplicaConfig
from engine.engine import Engine
from engine.main import SPINS, make_engine
from engine.ops import choose
from infra.bench_engine import Workload, run
from infra.commands.bench import machine
from schemas.settings import load
from schemas.tokenizer import ChatTokenizer
from tests.benchmarks.peers.compare import Row, Run, Side, alternated, markdown
from tests.benchmarks.peers.environment import FOLDER, HERE, PEERS, Peer, PeerFailed, Process, install

# vLLM binds each thread to a core, and so is last where that one is busy; ours are not bound either.
ENV = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
ROOM_GIB = "4"  # for keys and values: more than any workload here needs


def main(peer: str, requests: str = "1,8,64", rounds: int = 5, output: int = 64, to: Path = FOLDER / "figures") -> None:
    """Measures LANEWAY_MODEL as a replica's settings say against PEER; the table and the plot go TO a folder."""
    if peer not in PEERS:
        raise SystemExit(f"--peer {peer!r}: expected one of {', '.join(PEERS)}")
    try:
        rows, name, fingerprint = measured(PEERS[peer], [int(count) for count in requests.split(",")], rounds, output)
    except (PeerFailed, ValueError) as error:
        raise SystemExit(str(error)) from None
    command = f"laneway bench-engine --peer {peer} --requests {requests} --rounds {rounds} --output {output}"
    table, about = markdown(rows, name), f"{machine()}, {time.strftime('%Y-%m-%d')}; {fingerprint}; `{command}`"
    Console(width=120).print(Markdown(table), about)
    to.mkdir(parents=True, exist_ok=True)
    (to / f"{peer}.md").write_text(f"{table}\n\n{about}\n")
    plot = json.dumps({"rows": [asdict(row) for row in rows], "peer": name, "to": str(to / f"{peer}.png")})
    subprocess.run([PEERS[peer].python, str(HERE / "plot.py")], input=plot, text=True, check=True)


def measured(peer: Peer, counts: list[int], rounds: int, output: int) -> tuple[list[Row], str, str]:
    """The rows, what the peer calls itself, and our fingerprint. Raises PeerFailed, or ValueError for a bad setting."""
    config = replace(load(ReplicaConfig, os.environ), max_running=max(counts))
    dtype = choose.name_of(config.dtype)
    if dtype not in peer.dtypes:
        raise ValueError(f"LANEWAY_DTYPE={dtype}: {peer.name} is compared in {' or '.join(peer.dtypes)}")
    install(peer)
    tokenizer = ChatTokenizer.load(config.model)
    engine = make_engine(config, tokenizer)
    with Process.of(peer, settings(peer, config, dtype), environment(config)) as process:
        sides = ours(engine, tokenizer.vocabulary), theirs(process, tokenizer.vocabulary)
        for side in sides:
            side(Workload(1, 64, 0, 4))
        rows = [alternated(sides, Workload(count, output=output), rounds) for count in counts]
    return rows, process.name, engine.fingerprint


def settings(peer: Peer, config: ReplicaConfig, dtype: str) -> dict[str, object]:
    """What the peer's script reads."""
    return {
        "model": str(peer.model(config.model, dtype)),
        "dtype": dtype,
        "threads": config.torch_threads,
        "at_once": config.max_running,
        "context": 1024,
    }


def environment(config: ReplicaConfig) -> dict[str, str]:
    """As many threads, which wait for each other as ours do."""
    threads = {"OMP_NUM_THREADS": str(config.torch_threads), "GOMP_SPINCOUNT": SPINS}
    return {**ENV, **threads, "VLLM_CPU_KVCACHE_SPACE": ROOM_GIB}


def ours(engine: Engine, vocabulary: int) -> Side:
    def once(workload: Workload) -> Run:
        sequences = workload.sequences(vocabulary)
        began, cpu = time.perf_counter(), time.process_time()
        run(engine, [(0, sequence) for sequence in sequences], lambda _: None)
        taken = time.perf_counter() - began, time.process_time() - cpu
        return Run(*taken, [list(sequence.output) for sequence in sequences])

    return once


def theirs(process: Process, vocabulary: int) -> Side:
    def once(workload: Workload) -> Run:
        prompts = [sequence.prompt for sequence in workload.sequences(vocabulary)]
        return Run(**process.ask(prompts=prompts, output=workload.output))

    return once


if __name__ == "__main__":
    typer.run(main)
