"""A fixed range of seeds in every test run, and that the simulator is what it says: repeatable, and able to fail."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from schemas.tokenizer import ChatTokenizer
from tests.simulation.mutants import MUTANTS, Mutant, put_in
from tests.simulation.plan import TARGETS, Fault, Plan, plan_of
from tests.simulation.run import Outcome, Run
from tests.simulation.shrink import shrunk
from tests.simulation.surroundings import CODEC, Sizes
from topics.log import Append

SEEDS = (*range(30), 37)
KINDS = (
    "Accepted Redirected Rejected Dispatched Started Tokens Preempted AttemptOpened Finished Stopped Shed Failed"
    " AbortReply ListenerAttached UsageRecorded HistoryLoaded Tick"
)


@pytest.fixture(scope="module")
def outcomes(tokenizer: ChatTokenizer) -> list[Outcome]:
    return [Run(plan_of(seed), tokenizer).outcome() for seed in SEEDS]


def test_whatever_goes_wrong_every_promise_is_kept(outcomes: list[Outcome]) -> None:
    failed = {f"make simulate SEED={o.plan.seed}": list(map(str, o.violations)) for o in outcomes if o.violations}
    assert failed == {}


def test_the_seeds_reach_every_fault_every_record_and_every_end(outcomes: list[Outcome]) -> None:
    happened = [what for outcome in outcomes for _, _, what in outcome.trace]
    faults = {what.kind for what in happened if isinstance(what, Fault)}
    values = {what.value for what in happened if isinstance(what, Append) and what.value}
    ends = Counter(end.split(": ")[1].split(" ")[0] for outcome in outcomes for end in outcome.ends)
    assert faults == set(TARGETS)
    assert {type(CODEC.decode(value)).__name__ for value in values} >= set(KINDS.split())
    assert ends.keys() >= {"finished", "stopped", "failed", "shed", "409"}


def test_the_same_seed_is_the_same_run_byte_for_byte_in_any_process(
    tokenizer: ChatTokenizer, outcomes: list[Outcome]
) -> None:
    command = [sys.executable, "-m", "tests.simulation", "--seed", "3", "--digest"]
    hashing = os.environ | {"PYTHONHASHSEED": "1"}
    there = subprocess.run(command, env=hashing, capture_output=True, text=True, check=True)
    assert there.stdout.strip() == outcomes[3].digest
    assert Run(plan_of(3), tokenizer).outcome() == outcomes[3]
    assert len({outcome.digest for outcome in outcomes}) == len(SEEDS)


@pytest.mark.parametrize("seed", range(3))
def test_where_nothing_goes_wrong_every_message_is_answered_in_full(tokenizer: ChatTokenizer, seed: int) -> None:
    asks = tuple(replace(ask, deadline_ms=30_000) for ask in plan_of(seed).asks)
    calm = Plan(seed, asks, faults=(), sizes=Sizes())
    outcome = Run(calm, tokenizer).outcome()
    assert outcome.violations == ()
    assert not any("failed" in end for end in outcome.ends)
    assert not any("crash" in str(what) or "stopped:" in str(what) for _, _, what in outcome.trace)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_in_the_product_is_found(tokenizer: ChatTokenizer, mutant: Mutant) -> None:
    with put_in(mutant):
        assert Run(plan_of(mutant.found_by), tokenizer).outcome().violations


@pytest.mark.parametrize("seed", sorted({mutant.found_by for mutant in MUTANTS} - set(SEEDS)))
def test_a_seed_that_found_a_fault_passes_without_it(tokenizer: ChatTokenizer, seed: int) -> None:
    assert Run(plan_of(seed), tokenizer).outcome().violations == ()


def test_a_failing_seed_shrinks_to_the_parts_that_it_takes(tokenizer: ChatTokenizer) -> None:
    mutant = next(each for each in MUTANTS if each.name == "ignores client keys")
    plan = plan_of(mutant.found_by)
    plan = replace(plan, asks=plan.asks[:3], faults=plan.faults[:1])
    with put_in(mutant):
        small = shrunk(plan, tokenizer)
        assert Run(small, tokenizer).outcome().violations
    assert len(small.parts) < len(plan.parts) and len(small.asks) == 1
