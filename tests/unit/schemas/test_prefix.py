"""Names of prefixes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.events import pack_ids
from schemas.prefix import BLOCK_TOKENS, block_hash, packed_prefix_hashes, prefix_hashes, root_hash

IDS = st.lists(st.integers(0, 2**32 - 1), max_size=80)


@given(ids=IDS, more=IDS)
def test_a_prefix_keeps_its_names_whatever_follows(ids: list[int], more: list[int]) -> None:
    names = list(prefix_hashes(ids, "acme"))
    assert list(prefix_hashes(ids + more, "acme"))[: len(names)] == names
    assert len(names) == len(ids) // BLOCK_TOKENS


@given(ids=st.lists(st.integers(0, 9), min_size=32, max_size=64), at=st.integers(0, 31))
def test_one_other_token_changes_all_names_from_its_block_on(ids: list[int], at: int) -> None:
    other = [*ids[:at], ids[at] + 1, *ids[at + 1 :]]
    same = at // BLOCK_TOKENS
    names, others = list(prefix_hashes(ids, "")), list(prefix_hashes(other, ""))
    assert names[:same] == others[:same]
    assert not set(names[same:]) & set(others)


@given(ids=IDS)
def test_two_salts_never_share_a_name(ids: list[int]) -> None:
    assert not set(prefix_hashes(ids, "acme")) & set(prefix_hashes(ids, "evil"))


def test_names_are_the_same_in_every_process_and_version() -> None:
    names = [name.hex() for name in prefix_hashes(range(40), "acme")]
    assert names == ["a215b3499c1de9e90a066fbc11158715", "473e2dc72b1d1b067010db9c1f5d23e8"]


@given(ids=IDS)
def test_packed_ids_have_the_same_names(ids: list[int]) -> None:
    assert packed_prefix_hashes(pack_ids(ids), "acme") == list(prefix_hashes(ids, "acme"))


def test_only_full_blocks_have_a_name() -> None:
    with pytest.raises(struct.error):
        block_hash(root_hash(""), range(15))
