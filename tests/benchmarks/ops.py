"""`make bench-ops`: the model on the C++ ops, on torch's, and with int8 weights, against its matrix products alone.

Rounds alternate: workload W (320 prompt tokens of which 256 are shared, greedy) on one engine after the other. Printed
are medians over the rounds and ratios to the first; absolute figures are this machine's. A step is one in which all
decode, on the first engine; its floor is what that one's linears take on as many rows with nothing between them, in the
same run. Steps may take any time, else a slow machine would not run so many at once.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import replace

import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from engine.config import ReplicaConfig
from engine.engine import Engine
from engine.main import make_engine
from engine.model import Llama
from engine.ops.cpu import build
from engine.ops.linear import Linear, TiledLinear
from engine.runner import Sampled
from infra.bench_engine import Figures, Workload, measure
from schemas.settings import load
from schemas.tokenizer import ChatTokenizer
from tests.benchmarks.rounds import cores

STEPS = 9
ANY = 3600.0  # seconds


def main(
    requests: str = "1,8,64",
    rounds: int = 3,
    output: int = 64,
    variants: str = "cpu,reference,cpu:int8",
    kind: str = "",
) -> None:
    """Measures LANEWAY_MODEL as a replica's settings say, on each of `variants`, which are ops or ops:dtype; with the
    C++ ops as they are for `kind`, an older kind of CPU than this one, if it is given."""
    if kind:
        known = {one.name: one for one in build.TARGETS}
        if kind not in known:
            raise typer.BadParameter(f"{kind}: expected {' or '.join(known)}", param_hint="--kind")
        build.TARGETS = (known[kind],)
    counts, names = [int(count) for count in requests.split(",")], variants.split(",")
    config = replace(load(ReplicaConfig, os.environ), max_running=max(counts), step_s=ANY)
    tokenizer, console = ChatTokenizer.load(config.model), Console(width=120)
    engines = [engine_of(config, tokenizer, name) for name in names]
    console.print(*(engine.fingerprint for engine in engines), sep="\n")
    head = "at once", *(f"{name} tok/s" for name in names), "ratios", "step", "its linears", "ratio"
    for count in counts:
        found: list[list[Figures]] = [[] for _ in engines]
        steps, floors = [], []
        for n in track(range(rounds), f"{count} at once", transient=True):
            for engine, figures in zip(engines, found, strict=True):  # a token more each round: no prompt is cached
                workload = Workload(count, 320 + n, 256, output)
                figures.append(measure(engine, workload, tokenizer.vocabulary, lambda _: None))
            steps.append(step_s(engines[0], Workload(count, 320 + rounds + n, 256), tokenizer.vocabulary))
            floors.append(linears_s(engines[0], count))
        table = Table(*head)
        table.add_row(str(count), *columns(found, steps, floors))
        console.print(table)
    console.print(f"medians of {rounds} rounds, {output} tokens a reply, {cores()}, {torch.get_num_threads()} threads")


def engine_of(config: ReplicaConfig, tokenizer: ChatTokenizer, name: str) -> Engine:
    ops, _, dtype = name.partition(":")
    engine = make_engine(replace(config, ops=ops, dtype=dtype or "auto"), tokenizer)
    measure(engine, Workload(1, 64, 0, 4), tokenizer.vocabulary, lambda _: None)
    return engine


def columns(found: list[list[Figures]], steps: list[float], floors: list[float]) -> list[str]:
    speeds = [statistics.median(one.tokens_per_s for one in figures) for figures in found]
    step, floor = statistics.median(steps), statistics.median(floors)
    ratios = " ".join(f"{speed / speeds[0]:.2f}" for speed in speeds)
    times = f"{1000 * step:.1f} ms", f"{1000 * floor:.1f} ms", f"{step / floor:.2f}"
    return [*(f"{speed:,.1f}" for speed in speeds), ratios, *times]


def linears(engine: Engine) -> list[Linear | TiledLinear]:
    model: Llama = engine._runner._model  # type: ignore[attr-defined]
    layers = [(layer._attention, layer._feed_forward) for layer in model._layers]
    ordered = [(one._qkv_proj, one._o_proj, two._gate_up_proj, two._down_proj) for one, two in layers]
    return [*(linear for four in ordered for linear in four), model._head]


def step_s(engine: Engine, workload: Workload, vocabulary: int) -> float:
    """Seconds of a step with one row of each: the median of some, once all prompts are computed."""
    sequences, taken = workload.sequences(vocabulary), list[float]()
    for sequence in sequences:
        engine.add(sequence)
    while len(taken) < STEPS:
        decoding = all(sequence.output for sequence in sequences)
        began = time.perf_counter()
        outcomes = engine.step()
        if decoding:
            taken.append(time.perf_counter() - began)
        for sequence, outcome in outcomes:
            if isinstance(outcome, Sampled):
                sequence.output.append(outcome.token_id)
    for sequence in sequences:
        engine.finish(sequence)
    return statistics.median(taken)


@torch.inference_mode()
def linears_s(engine: Engine, rows: int) -> float:
    """Seconds of all linears on so many rows, one after the other: the median of some."""
    dtype = engine._runner._model._norm.dtype  # type: ignore[attr-defined]
    inputs = [(linear, torch.randn(rows, linear.inputs).to(dtype)) for linear in linears(engine)]
    taken = []
    for _ in range(STEPS):
        began = time.perf_counter()
        for linear, x in inputs:
            linear(x)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


if __name__ == "__main__":
    typer.run(main)
