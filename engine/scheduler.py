"""Which tokens of which sequences the next step computes.

There are no phases: a sequence has tokens, some of them computed, and a step hands out a budget of tokens, first to
those that run, then to those that wait; a long prompt is thus computed in chunks, beside everybody's next token. No
torch, clock or random here. The invariant: a sequence is in one place - waiting, running or ended - and every running
one gets at least one token in each step. Source: the scheduler of vLLM V1.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from engine.block_manager import BlockManager
from engine.errors import NeverFits
from engine.sequence import Chunk, Sequence, Status, blocks_for
from topics.catalog import TIERS

SMALLEST_CHUNK = 64


@dataclass(frozen=True)
class Limits:
    """`step_tokens` bounds a step, and so does `step_s`, the time it should take. A sequence is admitted only while
    `reserve` blocks stay free for those that run. After `recomputations` preemptions it is given up. Every
    `trickle`-th admission goes to whoever has waited longest, whatever its tier.
    """

    max_running: int = 16
    step_tokens: int = 512
    step_s: float = 0.2
    reserve: int = 16
    recomputations: int = 8
    trickle: int = 8


@dataclass
class Step:
    """What one step computes, and what changed on the way; `published` are blocks that hold it only if it succeeds."""

    chunks: list[Chunk] = field(default_factory=list)
    admitted: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    given_up: list[Sequence] = field(default_factory=list)
    published: list[int] = field(default_factory=list)


class Scheduler:
    def __init__(self, blocks: BlockManager, limits: Limits) -> None:
        self.blocks, self.limits = blocks, limits
        self.running: list[Sequence] = []
        self._preempted: deque[Sequence] = deque()
        self._waiting: dict[str, deque[Sequence]] = {tier: deque() for tier in TIERS}
        self._arrivals = 0
        self._admissions = 0
        self._tokens_per_s = 0.0

    @property
    def waiting(self) -> list[Sequence]:
        """All that wait, in the order of their tiers."""
        return [*self._preempted, *(sequence for lane in self._waiting.values() for sequence in lane)]

    @property
    def num_waiting(self) -> int:
        return len(self._preempted) + sum(map(len, self._waiting.values()))

    def add(self, sequence: Sequence) -> None:
        """Puts it last in its tier. Raises NeverFits when all blocks together are too few for it."""
        needed = blocks_for(sequence.max_tokens)
        if needed > self.blocks.num_blocks:
            raise NeverFits(
                f"{sequence.max_tokens} tokens of prompt and reply need {needed} blocks of keys and values,"
                f" and this replica has {self.blocks.num_blocks}"
            )
        sequence.arrival, self._arrivals = self._arrivals, self._arrivals + 1
        sequence.status = Status.WAITING
        self._waiting[sequence.tier].append(sequence)

    def end(self, sequence: Sequence) -> None:
        """Takes it out, wherever it is; its blocks are free for the next step. Safe to repeat."""
        if sequence.status is Status.RUNNING:
            self.running.remove(sequence)
        elif sequence.status is Status.PREEMPTED:
            self._preempted.remove(sequence)
        elif sequence in self._waiting[sequence.tier]:
            self._waiting[sequence.tier].remove(sequence)
        self.blocks.release(sequence)
        sequence.status = Status.ENDED

    def schedule(self) -> Step:
        """The next step. `computed` or `failed` must be called with it before the next."""
        step = Step()
        budget = self._schedule_running(step, self._budget())
        if not step.preempted and not step.given_up:
            self._schedule_waiting(step, budget)
        return step

    def computed(self, step: Step, seconds: float) -> None:
        """The step has succeeded, in so many seconds."""
        for chunk in step.chunks:
            chunk.sequence.num_computed_tokens += chunk.num_tokens
        tokens = sum(chunk.num_tokens for chunk in step.chunks)
        # A step of few tokens costs about as much as one of none, and says little of what a chunk may cost.
        if tokens >= SMALLEST_CHUNK and seconds > 0:
            rate = tokens / seconds
            self._tokens_per_s = (self._tokens_per_s + rate) / 2 if self._tokens_per_s else rate

    def failed(self, step: Step) -> None:
        """The step has failed: what it would have computed is not there, and who took part starts anew."""
        self.blocks.retract(step.published)
        for chunk in reversed(step.chunks):
            self.running.remove(chunk.sequence)
            self._preempt(chunk.sequence, step)

    def _budget(self) -> int:
        """Tokens of the next step: as many as fit its time, as far as was measured, and one for each that runs."""
        fitting = int(self._tokens_per_s * self.limits.step_s) or self.limits.step_tokens
        return max(min(max(fitting, SMALLEST_CHUNK), self.limits.step_tokens), len(self.running))

    def _schedule_running(self, step: Step, budget: int) -> int:
        """In order of admission; when blocks run out, the newest makes room. Returns what is left of the budget."""
        shares = self._shares(budget)
        n = 0
        while n < len(self.running):
            sequence = self.running[n]
            tokens = shares[sequence]
            end = sequence.num_computed_tokens + tokens
            while sequence.status is Status.RUNNING and not self.blocks.can_grow(sequence, end):
                self._preempt(self.running.pop(), step)
            if sequence.status is Status.RUNNING:
                self.blocks.grow(sequence, end)
                self._take(step, sequence, tokens)
                budget -= tokens
            n += 1
        return budget

    def _shares(self, budget: int) -> dict[Sequence, int]:
        """One token for each, the rest for prompts in the order of their tiers: a long one neither keeps a higher tier
        out nor, for good, a lower one, to which a trickle is left.
        """
        shares = dict.fromkeys(self.running, 1)
        left = budget - len(shares)
        trickle = left // self.limits.trickle
        prompts = [one for one in self.running if one.num_tokens - one.num_computed_tokens > 1]
        prompts.sort(key=_rank)
        first_waiting = self._next_admissible()
        for sequence in prompts:
            most = left
            if first_waiting is not None and _rank(first_waiting) < _rank(sequence):
                most = min(left, trickle)
            elif _rank(sequence) < _rank(prompts[-1]):
                most = left - trickle
            tokens = min(sequence.num_tokens - sequence.num_computed_tokens - 1, most)
            shares[sequence] += tokens
            left -= tokens
        return shares

    def _next_admissible(self) -> Sequence | None:
        """Who would be admitted next, if there is a place and room for it now."""
        lane = self._next_lane() if len(self.running) < self.limits.max_running else None
        if lane is None or not self._fits(lane[0], self.blocks.cached_prefix(lane[0])):
            return None
        return lane[0]

    def _fits(self, sequence: Sequence, prefix: list[int]) -> bool:
        return self.blocks.cost(sequence, prefix) + self._reserve(sequence) <= self.blocks.num_free

    def _schedule_waiting(self, step: Step, budget: int) -> None:
        """Whoever is next is admitted or keeps all others waiting, so that a large one is not passed for ever."""
        while budget > 0 and len(self.running) < self.limits.max_running and (lane := self._next_lane()):
            sequence = lane[0]
            prefix = self.blocks.cached_prefix(sequence)
            if not self._fits(sequence, prefix):
                break
            lane.popleft()
            self._admissions += sequence.status is Status.WAITING
            self.blocks.admit(sequence, prefix)
            sequence.num_cached_tokens = sequence.num_computed_tokens
            sequence.status = Status.RUNNING
            self.running.append(sequence)
            step.admitted.append(sequence)
            tokens = min(sequence.num_tokens - sequence.num_computed_tokens, budget)
            self._take(step, sequence, tokens)
            budget -= tokens

    def _next_lane(self) -> deque[Sequence] | None:
        """The preempted first, then the tiers in order, and now and then whoever has waited longest."""
        if self._preempted:
            return self._preempted
        lanes = [lane for lane in self._waiting.values() if lane]
        if lanes and self._admissions % self.limits.trickle == self.limits.trickle - 1:
            return min(lanes, key=lambda lane: lane[0].arrival)
        return lanes[0] if lanes else None

    def _reserve(self, sequence: Sequence) -> int:
        """Free blocks that its admission must leave: more for one that was preempted, lest it be so again."""
        return self.limits.reserve * (1 + sequence.recomputations) if self.running else 0

    def _take(self, step: Step, sequence: Sequence, tokens: int) -> None:
        step.published += self.blocks.publish(sequence, sequence.num_computed_tokens + tokens)
        step.chunks.append(Chunk(sequence, tokens))

    def _preempt(self, sequence: Sequence, step: Step) -> None:
        self.blocks.release(sequence)
        if sequence.recomputations >= self.limits.recomputations:
            sequence.status = Status.ENDED
            step.given_up.append(sequence)
            return
        sequence.recomputations += 1
        sequence.status = Status.PREEMPTED
        self._preempted.appendleft(sequence)
        step.preempted.append(sequence)


def _rank(sequence: Sequence) -> int:
    return TIERS.index(sequence.tier)
