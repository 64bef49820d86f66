"""Reply ids carry their address under a seal; keys go to the partitions that Kafka's own clients choose."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from schemas.ids import (
    ForgedReplyId,
    ReplyAddress,
    assistant_message_id,
    created_ms,
    mint_reply_id,
    partition_of,
    read_reply_id,
    reply_partition,
    user_message_id,
)

KEY = b"the key of the cell"
UUID7 = "0197c3a1b2c37def8123456789abcdef"
CREATED_MS = 0x0197C3A1B2C3


@given(st.integers(0, 255), st.integers(0, 4095), st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1))
def test_an_id_says_where_and_when(cell: int, partition: int, created: int, random: int) -> None:
    reply = mint_reply_id(cell, partition, f"{created:012x}{random:020x}", KEY)
    assert read_reply_id(reply, KEY) == ReplyAddress(cell, partition, created)
    assert (reply_partition(reply), created_ms(reply)) == (partition, created)


@given(st.integers(0, 47), st.sampled_from("0123456789abcdefr-"))
def test_an_id_with_one_character_changed_is_forged(place: int, character: str) -> None:
    reply = mint_reply_id(1, 2, UUID7, KEY)
    assume(reply[place] != character)
    with pytest.raises(ForgedReplyId):
        read_reply_id(reply[:place] + character + reply[place + 1 :], KEY)


@given(st.text())
def test_any_other_text_is_forged(text: str) -> None:
    with pytest.raises(ForgedReplyId):
        read_reply_id(text, KEY)


def test_an_id_of_another_cells_key_or_form_is_forged() -> None:
    reply = mint_reply_id(1, 2, UUID7, KEY)
    for text, key in ((reply, b"another key"), (reply.upper(), KEY), (f"{reply}\n", KEY), (f" {reply}", KEY)):
        with pytest.raises(ForgedReplyId, match="is not a reply id of this cell"):
            read_reply_id(text, key)


def test_message_ids_follow_from_the_reply() -> None:
    reply = mint_reply_id(1, 2, UUID7, KEY)
    assert (user_message_id(reply), assistant_message_id(reply)) == (f"u-{UUID7}", f"a-{UUID7}")
    assert created_ms(reply) == CREATED_MS


@pytest.mark.parametrize(
    ("key", "murmur2"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_keys_hash_as_kafkas_own_partitioner_does(key: str, murmur2: int) -> None:
    assert partition_of(key, 2**31) == murmur2 & 0x7FFFFFFF
    assert partition_of(key, 16) == (murmur2 & 0x7FFFFFFF) % 16
