"""Who is computed, in which step."""

import subprocess
import sys

import pytest

from engine.errors import NeverFits
from engine.scheduler import Scheduler
from engine.sequence import Sequence, Status
from tests.unit.engine.scheduling import check, run, run_out, scheduler, sequence


def added(to: Scheduler, *sequences: Sequence) -> list[Sequence]:
    for one in sequences:
        to.add(one)
    return list(sequences)


def test_a_prompt_longer_than_the_budget_is_computed_in_chunks_beside_the_others_next_tokens() -> None:
    of = scheduler(20, step_tokens=40)
    short, long = added(of, sequence(10), sequence(100))
    steps = [[(c.sequence, c.num_tokens) for c in run(of).chunks] for _ in range(3)]
    assert steps == [[(short, 10), (long, 30)], [(short, 1), (long, 39)], [(short, 1), (long, 31)]]


def test_a_chunk_is_what_fits_the_time_that_a_step_should_take() -> None:
    of = scheduler(99, step_s=0.5)
    added(of, sequence(1400))
    assert run(of, seconds=4.0).chunks[0].num_tokens == 512
    assert run(of, seconds=0.5).chunks[0].num_tokens == 64
    assert run(of).chunks[0].num_tokens == 64


def test_everybody_who_runs_gets_a_token_however_small_the_budget() -> None:
    of = scheduler(99, step_tokens=4, max_running=9)
    added(of, *(sequence(2, 30) for _ in range(9)))
    for _ in range(8):
        run(of)
    assert len(of.running) == 4
    assert {chunk.sequence for chunk in run(of).chunks} == set(of.running)


def test_no_more_run_than_may_and_tiers_go_in_order() -> None:
    of = scheduler(99, max_running=2)
    tiers = "background", "free", "resume", "paid"
    all_ = added(of, *(sequence(5, tier=tier) for tier in tiers))
    assert run(of).admitted == [all_[2], all_[3]]
    assert of.waiting == [all_[1], all_[0]]


def test_a_long_prompt_does_not_keep_a_higher_tier_waiting() -> None:
    of = scheduler(999, step_tokens=80, trickle=8)
    [long] = added(of, sequence(2000, tier="background"))
    run(of)
    [paid] = added(of, sequence(100, tier="paid"))
    steps = [{c.sequence: c.num_tokens for c in run(of).chunks} for _ in range(4)]
    assert steps == [{long: 10, paid: 70}, {long: 50, paid: 30}, {long: 79, paid: 1}, {long: 79, paid: 1}]


def test_prompts_of_a_higher_tier_leave_a_trickle_to_one_that_runs() -> None:
    of = scheduler(999, step_tokens=80, trickle=8)
    [low] = added(of, sequence(2000, tier="background"))
    run(of)
    added(of, *(sequence(500, tier="resume") for _ in range(4)))
    computed = [sum(c.num_tokens for c in run(of).chunks if c.sequence is low) for _ in range(20)]
    assert all(8 <= tokens <= 11 for tokens in computed)


def test_the_lowest_tier_is_served_now_and_then() -> None:
    of = scheduler(99, max_running=1, trickle=4)
    [low] = added(of, sequence(5, 1, tier="background"))
    order: list[Sequence] = []
    for _ in range(12):
        added(of, sequence(5, 1, tier="paid"))
        order += run(of).admitted
    assert order.index(low) == 3


def test_the_newest_makes_room_and_comes_back_first_to_find_its_prefix() -> None:
    of = scheduler(5)
    old, new = added(of, sequence(31, 30), sequence(31, 30))
    run(of)
    run(of)
    [waiting] = added(of, sequence(5))
    step = run(of)
    assert (step.preempted, of.waiting, new.status, new.block_table) == ([new], [new, waiting], Status.PREEMPTED, [])
    steps = run_out(of)
    again = next(step for step in steps if new in step.admitted)
    assert (new.recomputations, old.position, new.position) == (1, 30, 30)
    assert again.admitted[0] is new and 0 < new.num_cached_tokens < 33


def test_after_so_many_recomputations_a_sequence_is_given_up() -> None:
    of = scheduler(4, recomputations=0)
    old, new = added(of, sequence(31, 30), sequence(31, 30))
    steps = run_out(of)
    assert [one for step in steps for one in step.given_up] == [new]
    assert (new.status, old.position) == (Status.ENDED, 30)
    check(of, [old, new])


def test_admission_leaves_a_reserve_to_those_that_run() -> None:
    of = scheduler(10, reserve=4)
    first, second = added(of, sequence(60, 40), sequence(60, 4))
    run(of)
    assert (of.running, of.waiting) == ([first], [second])
    of.end(first)
    assert run(of).admitted == [second]


def test_what_can_never_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(NeverFits, match=r"100 tokens of prompt and reply need 7 blocks .* has 6"):
        scheduler(6).add(sequence(90, 10))
    scheduler(6).add(sequence(90, 6))


def test_an_end_frees_blocks_for_the_next_step_wherever_the_sequence_is() -> None:
    of = scheduler(4)
    old, new, waiting = added(of, sequence(31, 30), sequence(31, 30), sequence(40))
    while new.status is not Status.PREEMPTED:
        run(of)
    for one in (waiting, new, old, old):
        of.end(one)
        check(of, [old, new, waiting])
    assert (of.blocks.num_free, of.num_waiting, of.running) == (4, 0, [])


def test_who_follows_in_the_same_step_shares_the_prefix() -> None:
    of, ids = scheduler(20), tuple(range(50))
    first, second = added(of, sequence(ids), sequence(ids))
    step = run(of)
    assert [(c.sequence, c.num_tokens) for c in step.chunks] == [(first, 50), (second, 2)]
    assert first.block_table[:3] == second.block_table[:3]


def test_a_failed_step_leaves_nothing_to_share_and_everybody_starts_anew() -> None:
    of, ids = scheduler(20), tuple(range(50))
    both = added(of, sequence(ids), sequence(ids))
    of.failed(of.schedule())
    check(of, both)
    assert (of.blocks.num_cached, of.waiting, of.running) == (0, both, [])
    assert [c.num_tokens for c in run(of).chunks] == [50, 2]


def test_the_next_turn_computes_only_what_is_new() -> None:
    of, ids = scheduler(40), tuple(range(100))
    for turn in range(3):
        [one] = added(of, sequence(ids, 20))
        computed = sum(c.num_tokens for step in run_out(of) for c in step.chunks)
        kept = 0 if turn == 0 else (len(ids) - 7) // 16 * 16
        assert (computed, one.num_cached_tokens) == (len(ids) + 19 - kept, kept)
        ids = (*ids, *one.output, 1, 2, 3, 4, 5, 6)


def test_scheduling_runs_without_torch() -> None:
    program = "import sys, engine.scheduler; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
