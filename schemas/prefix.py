"""Names of prompt prefixes: one hash for each full block of tokens, chained, so that it names all before it too.

In: token ids and a salt. Out: 16-byte hashes, the same on every machine and in every process: replicas find cached
blocks by them, and the router the replica that has them. The salt lies at the root of the chain: who has another salt
shares nothing, and cannot learn from the time a prompt takes what another customer has asked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b

BLOCK_TOKENS = 16
HASH_BYTES = 16

_BLOCK_BYTES = 4 * BLOCK_TOKENS
_PACK = struct.Struct(f"<{BLOCK_TOKENS}I").pack


def root_hash(salt: str) -> bytes:
    """The parent of a prompt's first block."""
    return blake2b(salt.encode(), digest_size=HASH_BYTES, person=b"laneway-prefix").digest()


def block_hash(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """The hash of a block of 16 ids after the one named `parent`. Raises struct.error for another number of them."""
    return blake2b(parent + _PACK(*token_ids), digest_size=HASH_BYTES).digest()


def prefix_hashes(token_ids: Sequence[int], salt: str) -> Iterable[bytes]:
    """The hash of each full block, first to last."""
    parent = root_hash(salt)
    for end in range(BLOCK_TOKENS, len(token_ids) + 1, BLOCK_TOKENS):
        parent = block_hash(parent, token_ids[end - BLOCK_TOKENS : end])
        yield parent


def packed_prefix_hashes(packed: bytes, salt: str) -> list[bytes]:
    """The same of ids as records carry them, little-endian uint32; several times as fast."""
    parent, names = root_hash(salt), []
    for end in range(_BLOCK_BYTES, len(packed) + 1, _BLOCK_BYTES):
        parent = blake2b(parent + packed[end - _BLOCK_BYTES : end], digest_size=HASH_BYTES).digest()
        names.append(parent)
    return names
