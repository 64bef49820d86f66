"""Blocks and the prefixes in them."""

from engine.block_manager import BlockManager
from engine.sequence import Sequence
from tests.unit.engine.scheduling import sequence


def admitted(manager: BlockManager, one: Sequence, computed: int | None = None) -> list[int]:
    """Admits it, publishes what `computed` tokens fill, and returns the blocks that it shares."""
    prefix = manager.cached_prefix(one)
    manager.admit(one, prefix)
    end = one.num_tokens if computed is None else computed
    manager.publish(one, end)
    one.num_computed_tokens = end
    return prefix


def test_a_table_holds_all_tokens_and_goes_back() -> None:
    manager, one = BlockManager(4), sequence(33)
    admitted(manager, one)
    assert (len(one.block_table), manager.num_free) == (3, 1)
    manager.release(one)
    assert (one.block_table, one.num_computed_tokens, manager.num_free) == ([], 0, 4)


def test_the_same_beginning_is_shared_while_it_is_used_and_after() -> None:
    manager, ids = BlockManager(9), tuple(range(40))
    first, second, third = (sequence(ids) for _ in range(3))
    admitted(manager, first)
    assert admitted(manager, second) == first.block_table[:2]
    assert [manager.blocks[n].ref_count for n in second.block_table] == [2, 2, 1]
    for one in (first, second):
        manager.release(one)
    assert len(admitted(manager, third)) == 2 and third.num_computed_tokens == 40


def test_the_whole_prompt_is_never_matched() -> None:
    manager, ids = BlockManager(9), tuple(range(32))
    admitted(manager, sequence(ids))
    second = sequence(ids)
    manager.admit(second, manager.cached_prefix(second))
    assert second.num_computed_tokens == 16


def test_what_was_not_computed_is_not_shared() -> None:
    manager, ids = BlockManager(9), tuple(range(60))
    admitted(manager, sequence(ids), computed=31)
    assert len(manager.cached_prefix(sequence(ids))) == 1


def test_a_hit_is_checked_token_by_token() -> None:
    manager, one = BlockManager(9), sequence(40)
    admitted(manager, one)
    manager.blocks[one.block_table[1]].token_ids = (0,) * 16
    assert manager.cached_prefix(sequence(one.prompt)) == one.block_table[:1]


def test_two_salts_never_share() -> None:
    manager, ids = BlockManager(9), tuple(range(40))
    admitted(manager, sequence(ids, salt="acme"))
    assert manager.cached_prefix(sequence(ids, salt="evil")) == []
    assert len(manager.cached_prefix(sequence(ids, salt="acme"))) == 2


def test_a_prefix_outlives_its_tail() -> None:
    manager, ids = BlockManager(4), tuple(range(64))
    old = sequence(ids)
    admitted(manager, old)
    manager.release(old)
    admitted(manager, sequence(32))
    assert len(manager.cached_prefix(sequence(ids))) == 2


def test_the_longest_free_goes_first() -> None:
    manager = BlockManager(4)
    old, young = sequence(32), sequence(32)
    for one in (old, young):
        admitted(manager, one)
    for one in (old, young):
        manager.release(one)
    admitted(manager, sequence(32))
    assert len(manager.cached_prefix(sequence((*young.prompt, 1)))) == 2
    assert manager.cached_prefix(sequence((*old.prompt, 1))) == []


def test_a_shared_block_costs_nothing_while_it_is_used() -> None:
    manager, ids = BlockManager(9), tuple(range(40))
    one, two = sequence(ids), sequence(ids)
    admitted(manager, one)
    prefix = manager.cached_prefix(two)
    assert manager.cost(two, prefix) == 1
    manager.release(one)
    assert manager.cost(two, prefix) == 3


def test_what_a_failed_step_published_is_forgotten() -> None:
    manager, one = BlockManager(9), sequence(40)
    manager.admit(one, [])
    manager.retract(manager.publish(one, 40))
    assert (manager.num_cached, manager.cached_prefix(sequence(one.prompt))) == (0, [])


def test_who_computes_the_same_at_once_publishes_it_once() -> None:
    manager, ids = BlockManager(9), tuple(range(40))
    one, two = sequence(ids), sequence(ids)
    for each in (one, two):
        manager.admit(each, [])
    assert (manager.publish(one, 40), manager.publish(two, 40)) == (one.block_table[:2], [])
