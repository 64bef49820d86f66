"""Tokens read in one go, since every token of every reply comes by every reader: half the time of the general way.

In: the body of a record in the current schema of Tokens. Out: the record, or None for all but the usual form, which
is one block of texts without logprobs; `Codec.decode` then reads it by its schema, and finds the words for what is bad.
"""

from __future__ import annotations

from schemas.ids import Incarnation
from schemas.reply_records import Tokens

LONGEST_SHIFT = 56
NO_MORE_TEXTS_NO_LOGPROBS = b"\x00\x00"


def read_tokens(body: bytes) -> Tokens | None:
    try:
        attempt, at = _long(body, 0)
        incarnation, at = _bytes(body, at)
        first, at = _long(body, at)
        ids, at = _bytes(body, at)
        count, at = _long(body, at)
        texts = []
        for _ in range(count):
            text, at = _bytes(body, at)
            texts.append(text.decode())
        if body[at:] != NO_MORE_TEXTS_NO_LOGPROBS:
            return None
        return Tokens(attempt, Incarnation(incarnation.decode()), first, ids, tuple(texts))
    except (IndexError, ValueError):
        return None


def _long(body: bytes, at: int) -> tuple[int, int]:
    """Avro's number at `at`, low bits first and zigzag, and where it ends."""
    byte = body[at]
    found, shift = byte & 0x7F, 7
    while byte & 0x80:
        if shift > LONGEST_SHIFT:
            raise ValueError("more than 63 bits")
        at += 1
        byte = body[at]
        found |= (byte & 0x7F) << shift
        shift += 7
    return (found >> 1) ^ -(found & 1), at + 1


def _bytes(body: bytes, at: int) -> tuple[bytes, int]:
    byte = body[at]
    size, at = _long(body, at) if byte & 0x81 else (byte >> 1, at + 1)  # most are short, and not negative
    end = at + size
    if not at <= end <= len(body):
        raise ValueError(f"{size} bytes at {at} of {len(body)}")
    return body[at:end], end
