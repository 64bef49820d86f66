"""`make simulate`: many seeds with a line of progress, or one with its trace; or how many each known fault takes."""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from schemas.tokenizer import ChatTokenizer
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import put_in
from tests.simulation.plan import Fault, plan_of
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
    parser.add_argument("--mutants", help="put in each fault whose name has this in it, until a seed finds it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = ChatTokenizer.load(write_tokenizer(Path(folder)))
    seeds = range(given.first, given.first + given.runs)
    if given.mutants is not None:
        return mutants(tokenizer, given.mutants, seeds)
    if given.seed is not None:
        return one(tokenizer, given.seed, given.only, digest=given.digest)
    return many(tokenizer, seeds)


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
    faults: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    gc.disable()  # a run is one tangle of objects that is let go of as a whole
    outcomes = (Run(plan_of(seed), tokenizer).outcome() for seed in seeds)
    for n, outcome in enumerate(until_interrupted(outcomes), start=1):
        faults.update(what.kind for _, _, what in outcome.trace if isinstance(what, Fault))
        ends.update(end.split(": ")[1].split(" ")[0] for end in outcome.ends)
        if outcome.violations:
            failed += 1
            tell(outcome, tokenizer)
        if n % 20 == 0 or n == len(seeds):
            gc.collect()
            a_minute = 60 * n / (time.monotonic() - began)
            print(f"\r{n} runs, {failed} failed, {a_minute:.0f} a minute", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for what, counts in (("faults", faults), ("ends for clients", ends)):
        print(f"{what}: {', '.join(f'{name} {count}' for name, count in counts.most_common())}")
    return 1 if failed else 0


def until_interrupted(outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
    """Ctrl-C ends a long run with the counts of what was done."""
    with suppress(KeyboardInterrupt):
        yield from outcomes


def tell(outcome: Outcome, tokenizer: ChatTokenizer) -> None:
    small = shrunk(outcome.plan, tokenizer)
    print(f"\nseed {outcome.plan.seed} fails; smallest: make simulate SEED={small.seed} ONLY={','.join(small.parts)}")
    for violation in outcome.violations[:5]:
        print(f"  {violation}", flush=True)


def mutants(tokenizer: ChatTokenizer, name: str, seeds: range) -> int:
    """One line for each: the first seed that finds it, and what it breaks there."""
    missed = 0
    for mutant in (each for each in MUTANTS if name in each.name):
        with put_in(mutant):
            outcomes = (Run(plan_of(seed), tokenizer).outcome() for seed in seeds)
            found = next((outcome for outcome in outcomes if outcome.violations), None)
        rules = sorted({violation.rule for violation in found.violations}) if found else []
        print(f"{mutant.name}: {f'seed {found.plan.seed}' if found else 'not found'} {', '.join(rules)}", flush=True)
        missed += found is None
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
