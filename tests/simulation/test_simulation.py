"""A fixed range of seeds in every test run, and that the simulator is what it says: repeatable, and able to fail."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from schemas.reply_records import Stopped
from schemas.tokenizer import ChatTokenizer
from tests.simulation.clients import Ask
from tests.simulation.faults import KINDS as FAULTS
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import Mutant, put_in
from tests.simulation.plan import TARGETS, Fault, Plan, plan_of
from tests.simulation.run import Outcome, Run
from tests.simulation.shrink import shrunk
from tests.simulation.surroundings import CODEC, Sizes
from topics.log import Append

SEEDS = (*range(24), 33, 531)
KINDS = (
    "Accepted Redirected Rejected Dispatched Started Tokens Preempted AttemptOpened Finished Stopped Shed Failed"
    " AbortReply ListenerAttached ListenerDetached EdgeBeat ReplyKept UsageRecorded HistoryLoaded Tick"
    " ConversationDeleted ConversationRenamed UsageAsked UsageTold PlansLoaded LimitSet QuotaKept"
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
    assert faults == set(FAULTS) >= set(TARGETS)
    assert {type(CODEC.decode(value)).__name__ for value in values} >= set(KINDS.split())
    assert ends.keys() >= {"finished", "stopped", "failed", "shed", "vanished", "409", "429"}


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


@pytest.mark.parametrize(
    ("on_disconnect", "back_ms", "abandoned"),
    [("grace", None, True), ("grace", 29_000, False), ("continue", None, False)],
)
def test_a_listener_back_at_29_s_is_in_time(
    tokenizer: ChatTokenizer, on_disconnect: str, back_ms: int | None, abandoned: bool
) -> None:
    slow = Sizes(step_ms=(2_000, 2_500), abandoned_s=30.0)
    ask = Ask("c0", "alice", "c", "abcdefgh" * 6, at_ms=0, max_tokens=48, deadline_ms=200_000, gone_ms=500)
    ask = replace(ask, on_disconnect=on_disconnect, back_ms=back_ms)
    outcome = Run(Plan(0, (ask,), faults=(), sizes=slow), tokenizer).outcome()
    written = [CODEC.decode(what.value) for _, _, what in outcome.trace if isinstance(what, Append) and what.value]
    assert outcome.violations == ()
    assert any(isinstance(event, Stopped) and event.by == "abandoned" for event in written) is abandoned


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_in_the_product_is_found(tokenizer: ChatTokenizer, mutant: Mutant) -> None:
    with put_in(mutant):
        assert Run(mutant.plan, tokenizer).outcome().violations


@pytest.mark.parametrize(
    "plan",
    {mutant.plan.seed: mutant.plan for mutant in MUTANTS if mutant.found_by not in SEEDS}.values(),
    ids=lambda plan: plan.seed,
)
def test_a_plan_that_found_a_fault_passes_without_it(tokenizer: ChatTokenizer, plan: Plan) -> None:
    assert Run(plan, tokenizer).outcome().violations == ()


def test_a_failing_seed_shrinks_to_the_parts_that_it_takes(tokenizer: ChatTokenizer) -> None:
    mutant = next(each for each in MUTANTS if each.name == "ignores client keys")
    plan = mutant.plan
    plan = replace(plan, asks=plan.asks[:3], faults=plan.faults[:1])
    with put_in(mutant):
        small = shrunk(plan, tokenizer)
        assert Run(small, tokenizer).outcome().violations
    assert len(small.parts) < len(plan.parts) and len(small.asks) == 1
