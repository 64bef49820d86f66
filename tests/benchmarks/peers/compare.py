"""Two engines on the same workloads, in turn: what each took, and medians of the rounds and of their ratios."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.progress import track

from infra.bench_engine import Workload


@dataclass(frozen=True)
class Run:
    """One engine's run of one workload. `cpu_s`: seconds of CPU that its process took."""

    seconds: float
    cpu_s: float
    replies: list[list[int]]

    @property
    def tokens_per_s(self) -> float:
        return sum(map(len, self.replies)) / self.seconds


Side = Callable[[Workload], Run]


@dataclass(frozen=True)
class Row:
    """Medians: tokens a second of ours and of theirs, and how often ours is as fast, by the clock and by CPU time.
    `alike`: the share of the replies that are the same to the last token."""

    requests: int
    ours: float
    theirs: float
    ratio: float
    cpu_ratio: float
    alike: float


def alternated(sides: tuple[Side, Side], workload: Workload, rounds: int) -> Row:
    """Ours is `sides[0]`; each is first in every second round. A token more each round: no prompt is cached."""
    pairs: list[tuple[Run, Run]] = []
    for n in track(range(rounds), f"{workload.requests} at once", console=Console(stderr=True), transient=True):
        longer = Workload(workload.requests, workload.prompt + n, workload.shared, workload.output)
        found = {side: sides[side](longer) for side in ((0, 1) if n % 2 == 0 else (1, 0))}
        pairs.append((found[0], found[1]))
    return row_of(workload.requests, pairs)


def row_of(requests: int, pairs: list[tuple[Run, Run]]) -> Row:
    alike = [a == b for ours, theirs in pairs for a, b in zip(ours.replies, theirs.replies, strict=True)]
    return Row(
        requests,
        median(ours.tokens_per_s for ours, _ in pairs),
        median(theirs.tokens_per_s for _, theirs in pairs),
        median(theirs.seconds / ours.seconds for ours, theirs in pairs),
        median(theirs.cpu_s / ours.cpu_s for ours, theirs in pairs),
        sum(alike) / len(alike),
    )


def markdown(rows: list[Row], peer: str) -> str:
    head = "at once", "Laneway", peer, "ratio", "ratio in CPU time", "same replies"
    table = [head, ("---",) * len(head)]
    for row in rows:
        speeds = f"{row.ours:,.1f} tok/s", f"{row.theirs:,.1f} tok/s"
        table.append((str(row.requests), *speeds, f"{row.ratio:.2f}", f"{row.cpu_ratio:.2f}", f"{row.alike:.0%}"))
    return "\n".join(f"| {' | '.join(line)} |" for line in table)
