"""`make chaos`: a plan on a stack of its own, and the verdict. What fails keeps its logs and records.

`--runs` takes so many seeds one after the other. Odd seeds run a tiny random model, even ones a scripted replica.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from tests.chaos.plan import Plan, plan_of
from tests.chaos.reading import Judge
from tests.chaos.run import Outcome, Run
from tests.chaos.telling import lines
from tests.chaos.troubled import TroubledStack
from tests.chaos.undisturbed import undisturbed

KEPT = Path("build/chaos")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, required=True, help="the first seed")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--replica", choices=("scripted", "model"), help="instead of what the seed says")
    given = parser.parse_args()
    failed = [
        seed for seed in range(given.seed, given.seed + given.runs) if not one(seed, given.minutes, given.replica)
    ]
    for seed in failed:
        print(f"failed: make chaos SEED={seed} MINUTES={given.minutes:g}; what it left is in {KEPT / str(seed)}")
    return 1 if failed else 0


def one(seed: int, minutes: float, replica: str | None) -> bool:
    """Whether every promise was kept."""
    folder, kind = KEPT.absolute() / str(seed), replica or replica_of(seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with TroubledStack(folder, kind) as stack:
        outcome = outcome_of(stack, plan_of(seed, minutes), kind)
    text = "\n".join(lines(outcome))
    say(f"{text}\n  replica        {kind}")
    if outcome.violations:
        (folder / "verdict.txt").write_text("\n".join(map(str, outcome.violations)))
    else:
        shutil.rmtree(folder)
    return not outcome.violations


def outcome_of(stack: TroubledStack, plan: Plan, kind: str) -> Outcome:
    judge = Judge(stack, undisturbed(stack.model, kind))
    try:
        return Run(plan, stack, judge, say).outcome()
    finally:
        judge.close()


def replica_of(seed: int) -> str:
    return "model" if seed % 2 else "scripted"


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
