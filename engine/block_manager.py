"""Who owns which block of the key-value cache, and which blocks hold a prefix that others can share.

In: sequences and how far they will be computed. Out: their block tables. The invariant: a block is in the free queue
exactly when no block table names it, and its count is the number of tables that do.

A freed block keeps its contents and its hash until it is given out again. Blocks are freed last first, and the queue
gives the longest free first, so a prefix outlives what came after it. Source: the automatic prefix cache of vLLM.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence as Ids
from dataclasses import dataclass

from engine.sequence import Sequence, blocks_for
from schemas.prefix import BLOCK_TOKENS, block_hash, root_hash


@dataclass(slots=True)
class Block:
    """`hash` and `token_ids` are set while others may share what it holds."""

    ref_count: int = 0
    hash: bytes | None = None
    token_ids: tuple[int, ...] = ()


class BlockManager:
    def __init__(self, num_blocks: int) -> None:
        self.blocks = [Block() for _ in range(num_blocks)]
        # Ordered dictionaries are linked lists: a block leaves the middle as fast as an end.
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._cached: dict[bytes, int] = {}

    @property
    def num_blocks(self) -> int:
        return len(self.blocks)

    @property
    def num_free(self) -> int:
        """Blocks that can be given out, those with a shareable prefix among them."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Blocks, free or not, whose contents can be found by their hash."""
        return len(self._cached)

    def cached_prefix(self, sequence: Sequence) -> list[int]:
        """The blocks that hold the beginning of `sequence`; one token at least is left to be computed."""
        found: list[int] = []
        for n in range((sequence.num_tokens - 1) // BLOCK_TOKENS):
            token_ids = _token_ids(sequence, n)
            block = self._cached.get(_hash(sequence, n, token_ids))
            if block is None or self.blocks[block].token_ids != token_ids:
                break
            found.append(block)
        return found

    def cost(self, sequence: Sequence, prefix: list[int]) -> int:
        """How many free blocks its tokens so far take, when it shares `prefix`."""
        shared = sum(self.blocks[block].ref_count > 0 for block in prefix)
        return blocks_for(sequence.num_tokens) - shared

    def admit(self, sequence: Sequence, prefix: list[int]) -> None:
        """Gives it blocks for all its tokens; the prefix counts as computed."""
        for block in prefix:
            if self.blocks[block].ref_count == 0:
                del self._free[block]
            self.blocks[block].ref_count += 1
        sequence.block_table[:] = prefix
        sequence.num_computed_tokens = len(prefix) * BLOCK_TOKENS
        self.grow(sequence, sequence.num_tokens)

    def can_grow(self, sequence: Sequence, tokens: int) -> bool:
        return blocks_for(tokens) - len(sequence.block_table) <= self.num_free

    def grow(self, sequence: Sequence, tokens: int) -> None:
        """Extends its block table to hold so many tokens; `can_grow` must have said that there is room."""
        while len(sequence.block_table) < blocks_for(tokens):
            number, _ = self._free.popitem(last=False)
            self._forget(number)
            self.blocks[number].ref_count = 1
            sequence.block_table.append(number)

    def publish(self, sequence: Sequence, tokens: int) -> list[int]:
        """Makes its full blocks among the first `tokens` findable; returns those that were not.

        Called when a step is scheduled: whoever follows in the same step shares already, since each layer writes all
        keys and values before any is read. Should the step fail, `retract` takes it back.
        """
        published = []
        for n in range(sequence.num_computed_tokens // BLOCK_TOKENS, tokens // BLOCK_TOKENS):
            token_ids, number = _token_ids(sequence, n), sequence.block_table[n]
            key = _hash(sequence, n, token_ids)
            if key not in self._cached:
                self._cached[key] = number
                self.blocks[number].hash, self.blocks[number].token_ids = key, token_ids
                published.append(number)
        return published

    def retract(self, published: list[int]) -> None:
        """Forgets what these blocks hold."""
        for number in published:
            self._forget(number)

    def release(self, sequence: Sequence) -> None:
        """Takes all its blocks away; what they hold can still be found."""
        for number in reversed(sequence.block_table):
            block = self.blocks[number]
            block.ref_count -= 1
            if block.ref_count == 0:
                self._free[number] = None
        sequence.block_table.clear()
        sequence.num_computed_tokens = 0

    def _forget(self, number: int) -> None:
        block = self.blocks[number]
        if block.hash is not None:
            del self._cached[block.hash]
            block.hash, block.token_ids = None, ()


def _token_ids(sequence: Sequence, n: int) -> tuple[int, ...]:
    return tuple(sequence.tokens(n * BLOCK_TOKENS, (n + 1) * BLOCK_TOKENS))


def _hash(sequence: Sequence, n: int, token_ids: Ids[int]) -> bytes:
    """The hash of its n-th block; those before it were asked for first, and each is computed once."""
    hashes = sequence.block_hashes
    if n == len(hashes):
        hashes.append(block_hash(hashes[-1] if hashes else root_hash(sequence.salt), token_ids))
    return hashes[n]
