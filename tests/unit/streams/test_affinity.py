"""What the router remembers of where prompts went."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.events import pack_ids
from schemas.ids import Incarnation
from schemas.prefix import BLOCK_TOKENS, packed_prefix_hashes
from streams.affinity import Affinity
from tests.unit.streams.staged import ONE, TWO

MOST = 7
PROMPTS = st.lists(st.lists(st.integers(0, 1), max_size=12), max_size=12)


def names(*blocks: int, account: str = "acme") -> list[bytes]:
    """The names of a prompt, each of whose blocks holds one number over and over."""
    return packed_prefix_hashes(pack_ids(n for n in blocks for _ in range(BLOCK_TOKENS)), account)


@given(prompts=PROMPTS)
def test_it_never_holds_too_many_names_nor_one_without_those_before_it(prompts: list[list[int]]) -> None:
    affinity = Affinity(MOST)
    for prompt in prompts:
        affinity.sent(ONE, names(*prompt))
    every = {tuple(prompt[:n]) for prompt in prompts for n in range(1, len(prompt) + 1)}
    held = {prefix for prefix in every if affinity.blocks(ONE, names(*prefix)) == len(prefix)}
    assert len(held) <= MOST
    assert all(affinity.blocks(ONE, names(*prompt)) == _leading(prompt, held) for prompt in prompts)


def _leading(prompt: list[int], held: set[tuple[int, ...]]) -> int:
    """How many of its prefixes are held, by looking at each."""
    found = [tuple(prompt[:n]) in held for n in range(1, len(prompt) + 1)]
    return found.index(False) if False in found else len(found)


@given(prompts=PROMPTS.filter(bool))
def test_the_last_prompt_is_known_up_to_the_limit(prompts: list[list[int]]) -> None:
    affinity = Affinity(MOST)
    for prompt in prompts:
        affinity.sent(ONE, names(*prompt))
    assert affinity.blocks(ONE, names(*prompts[-1])) == min(MOST, len(prompts[-1]))
    assert affinity.blocks(TWO, names(*prompts[-1])) == 0


def test_what_was_not_sent_for_longest_goes_first_and_an_end_before_its_beginning() -> None:
    affinity = Affinity(4)
    affinity.sent(ONE, names(1, 2))
    affinity.sent(ONE, names(3, 4))
    affinity.sent(ONE, names(1))
    affinity.sent(ONE, names(5, 6))
    assert [affinity.blocks(ONE, names(*prompt)) for prompt in ((1, 2), (3, 4), (5, 6))] == [1, 1, 2]


def test_the_turn_after_a_prompt_finds_it_and_another_account_does_not() -> None:
    affinity = Affinity()
    affinity.sent(ONE, names(1, 2))
    assert affinity.blocks(ONE, names(1, 2, 3, 4)) == 2
    assert affinity.blocks(ONE, names(1, 2, 3, 4, account="evil")) == 0


def test_only_the_living_are_remembered() -> None:
    affinity = Affinity()
    for incarnation in (ONE, TWO):
        affinity.sent(incarnation, names(1, 2))
    affinity.keep({TWO, Incarnation("three")})
    assert [affinity.blocks(incarnation, names(1, 2)) for incarnation in (ONE, TWO)] == [0, 2]


def test_one_that_leaves_is_forgotten_alone() -> None:
    affinity = Affinity()
    for incarnation in (ONE, TWO):
        affinity.sent(incarnation, names(1, 2))
    affinity.forget(ONE)
    affinity.forget(Incarnation("three"))
    assert [affinity.blocks(incarnation, names(1, 2)) for incarnation in (ONE, TWO)] == [0, 2]
