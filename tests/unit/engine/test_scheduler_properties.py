"""Whatever arrives, ends and fails: blocks and sequences are in one place, nobody starves, and all end."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from engine.sequence import Sequence, Status
from tests.unit.engine.scheduling import check, next_token, run, run_out, scheduler, sequence
from topics.catalog import TIERS

TRICKLE = 3


class Churn(RuleBasedStateMachine):
    """Prompts are slices of one text, so that many share a prefix; the cache holds three or four of the longest."""

    @initialize(blocks=st.integers(8, 24), reserve=st.integers(0, 4), budget=st.sampled_from([8, 33, 200]))
    def begin(self, blocks: int, reserve: int, budget: int) -> None:
        limits = {"reserve": reserve, "step_tokens": budget, "max_running": 5, "recomputations": 3, "trickle": TRICKLE}
        self.of = scheduler(blocks, **limits)
        self.known: list[Sequence] = []
        self.admitted_by: dict[Sequence, int] = {}

    @rule(
        start=st.sampled_from([0, 0, 1]),
        length=st.integers(1, 90),
        max_tokens=st.integers(1, 38),
        tier=st.sampled_from(TIERS),
        salt=st.sampled_from(["acme", "acme", "evil"]),
    )
    def arrive(self, start: int, length: int, max_tokens: int, tier: str, salt: str) -> None:
        ids = tuple(range(start, start + length))
        one = sequence(ids, max_tokens, tier=tier, salt=salt)
        ahead = sum(other.status is Status.WAITING for other in self.of.waiting)
        self.admitted_by[one] = self.of._admissions + TRICKLE * (ahead + 1)
        self.of.add(one)
        self.known.append(one)

    @rule(which=st.integers(0, 99))
    def abort(self, which: int) -> None:
        alive = [*self.of.running, *self.of.waiting]
        if alive:
            self.of.end(alive[which % len(alive)])

    @rule(steps=st.integers(1, 20))
    def compute(self, steps: int) -> None:
        for _ in range(steps):
            run(self.of)
            self.sound()

    @rule()
    def fail(self) -> None:
        self.of.failed(self.of.schedule())

    @invariant()
    def sound(self) -> None:
        if hasattr(self, "of"):
            check(self.of, self.known)
            self.nobody_starves()
            owners: dict[int, set[str]] = {}
            for one in self.known:
                for block in one.block_table:
                    owners.setdefault(block, set()).add(one.salt)
            assert all(len(salts) == 1 for salts in owners.values())

    def nobody_starves(self) -> None:
        """Every third admission goes to the oldest, so each who was there before takes one of those at most."""
        for one in self.known:
            assert one.status is not Status.WAITING or self.of._admissions < self.admitted_by[one], one.tier

    def teardown(self) -> None:
        if hasattr(self, "of"):
            for _ in range(10_000):
                if not self.of.running and not self.of.num_waiting:
                    break
                run(self.of)
                self.nobody_starves()
            check(self.of, self.known)
            assert self.of.blocks.num_free == self.of.blocks.num_blocks


def test_blocks_and_sequences_under_churn() -> None:
    run_state_machine_as_test(Churn, settings=settings(max_examples=60, stateful_step_count=25, deadline=None))


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 100), st.integers(1, 60)), min_size=2, max_size=10),
    budget=st.sampled_from([16, 64, 512]),
)
def test_half_the_needed_blocks_are_enough_to_end(sizes: list[tuple[int, int]], budget: int) -> None:
    all_ = [sequence(prompt, max_tokens) for prompt, max_tokens in sizes]
    needed = [-(-one.max_tokens // 16) for one in all_]
    of = scheduler(max(*needed, sum(needed) // 2), step_tokens=budget)
    for one in all_:
        of.add(one)
    run_out(of, 4 * sum(map(sum, sizes)) + 10)
    given_up = [one for one in all_ if one.position < one.sampling.max_tokens]
    assert all(one.recomputations == of.limits.recomputations for one in given_up)
    assert len(given_up) < len(all_)


@settings(max_examples=40, deadline=None)
@given(prompt=st.integers(1, 90), max_tokens=st.integers(1, 60), neighbours=st.integers(0, 6))
def test_preemption_changes_no_token(prompt: int, max_tokens: int, neighbours: int) -> None:
    ids = tuple(range(prompt))
    of = scheduler(12, step_tokens=40)
    for _ in range(neighbours):
        of.add(sequence(20, 30))
    of.add(one := sequence(ids, max_tokens))
    run_out(of)
    alone: list[int] = []
    while len(alone) < one.position:
        alone.append(next_token(sequence(ids, max_tokens, accepted=tuple(alone))))
    assert one.output == alone
