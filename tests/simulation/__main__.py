"""`make simulate`: many seeds with a line of progress, or one with its trace."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from schemas.tokenizer import ChatTokenizer
from tests.simulation.plan import plan_of
from tests.simulation.run import Outcome, Run
from tests.simulation.shrink import shrunk
from tests.simulation.tracing import lines
from tests.tiny_tokenizer import write_tokenizer


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed, with its trace")
    parser.add_argument("--only", default="", help="the parts of its plan that are to happen: c0,c2,f1")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--digest", action="store_true", help="of one seed, only the hash of all its records")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = ChatTokenizer.load(write_tokenizer(Path(folder)))
    if given.seed is not None:
        return one(tokenizer, given.seed, given.only, digest=given.digest)
    return many(tokenizer, range(given.first, given.first + given.runs))


def one(tokenizer: ChatTokenizer, seed: int, only: str, *, digest: bool) -> int:
    plan = plan_of(seed)
    if only:
        plan = plan.only(frozenset(only.split(",")))
    outcome = Run(plan, tokenizer).outcome()
    for line in [outcome.digest] if digest else lines(outcome):
        print(line)
    return 1 if outcome.violations else 0


def many(tokenizer: ChatTokenizer, seeds: range) -> int:
    began, failed = time.monotonic(), 0
    for n, seed in enumerate(seeds, start=1):
        outcome = Run(plan_of(seed), tokenizer).outcome()
        if outcome.violations:
            failed += 1
            tell(outcome, tokenizer)
        if n % 20 == 0 or n == len(seeds):
            rate = n / (time.monotonic() - began)
            print(f"\r{n} runs, {failed} failed, {rate:.0f} a second", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return 1 if failed else 0


def tell(outcome: Outcome, tokenizer: ChatTokenizer) -> None:
    small = shrunk(outcome.plan, tokenizer)
    print(f"\nseed {outcome.plan.seed} fails; smallest: make simulate SEED={small.seed} ONLY={','.join(small.parts)}")
    for violation in outcome.violations[:5]:
        print(f"  {violation}")


if __name__ == "__main__":
    sys.exit(main())
