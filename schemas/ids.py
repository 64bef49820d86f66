"""Names that travel in records: typed ids, the reply id with its address and its seal, key hashes.

A reply id says where the reply lives (cell, partition of `replies`) and when it was made, so any process
finds it without an index; the MAC under the cell's key lets a forged id be refused before any read.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import NewType

ReplyId = NewType("ReplyId", str)
UserId = NewType("UserId", str)
ConversationId = NewType("ConversationId", str)
MessageId = NewType("MessageId", str)
Incarnation = NewType("Incarnation", str)

_REPLY_ID = re.compile(r"r([0-9a-f]{2})([0-9a-f]{3})-([0-9a-f]{32})-([0-9a-f]{8})", re.ASCII)


class ForgedReplyId(ValueError):
    """The text is not a reply id of this cell. A retry does not help."""


@dataclass(frozen=True, slots=True)
class ReplyAddress:
    """Where and when a reply began: `cell` 0..255, `partition` of `replies` 0..4095, `created_ms` since 1970."""

    cell: int
    partition: int
    created_ms: int


def mint_reply_id(cell: int, partition: int, uuid7_hex: str, key: bytes) -> ReplyId:
    """`r<cell><partition>-<uuid7>-<MAC>`, all lower-case hex; `uuid7_hex` is 32 digits without dashes."""
    body = f"r{cell:02x}{partition:03x}-{uuid7_hex}"
    return ReplyId(f"{body}-{_mac(body, key)}")


def read_reply_id(text: str, key: bytes) -> ReplyAddress:
    """The address in a reply id. Raises ForgedReplyId when the form or the MAC is wrong."""
    match = _REPLY_ID.fullmatch(text)
    if match is None or not hmac.compare_digest(match[4], _mac(text[:-9], key)):
        raise ForgedReplyId(f"{text[:80]!r} is not a reply id of this cell")
    return ReplyAddress(int(match[1], 16), int(match[2], 16), int(match[3][:12], 16))


def has_reply_id_form(text: str) -> bool:
    """Whether the text could be a reply id, its MAC not checked: for keys of records that a trusted writer made."""
    return _REPLY_ID.fullmatch(text) is not None


def reply_partition(reply: ReplyId) -> int:
    """The partition of `replies` in an id that a trusted record carries (its MAC is not checked again)."""
    return int(reply[3:6], 16)


def created_ms(reply: ReplyId) -> int:
    """The creation time in an id that a trusted record carries, in milliseconds since 1970."""
    return int(reply[7:19], 16)


def user_message_id(reply: ReplyId) -> MessageId:
    """The id of the message that asked for this reply; derived, so that a replay names the same turn."""
    return MessageId(f"u-{reply[7:39]}")


def assistant_message_id(reply: ReplyId) -> MessageId:
    """The id of the message that is this reply."""
    return MessageId(f"a-{reply[7:39]}")


def partition_of(key: str, partitions: int) -> int:
    """The partition of a keyed record: Java's murmur2, as Kafka's own default partitioner has it.

    So a data team's joins by the same key in any client land on the same partition number.
    """
    return (_murmur2(key.encode()) & 0x7FFFFFFF) % partitions


def _mac(body: str, key: bytes) -> str:
    return hmac.new(key, body.encode(), hashlib.sha256).hexdigest()[:8]


def _murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2, 32 bits, with the seed of org.apache.kafka.common.utils.Utils."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15
