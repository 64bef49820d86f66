"""The router: which of the replicas that have room gets a prompt, and what it makes of beats that none has sent."""

from collections import Counter
from dataclasses import replace

import pytest

from schemas.events import LanePosition, ReplicaBeat, SupervisorBeat
from schemas.ids import Incarnation
from schemas.prefix import packed_prefix_hashes
from streams.replicas import SILENT_BEATS
from streams.router import MOST_IMBALANCE
from streams.stage import Message
from tests.unit.streams.routing import BACKLOGS, Routed, replies, sent
from tests.unit.streams.staged import ONE, T0, TWO, beat, reply_id, request
from topics.catalog import LARGEST_REQUEST

THREE = Incarnation("three")


@pytest.fixture
def router() -> Routed:
    return Routed()


def test_a_longer_prompt_goes_where_its_beginning_went(router: Routed) -> None:
    router.beat(beat(ONE, slot=0, capacity=9))
    router.beat(beat(TWO, slot=1, capacity=9))
    assert router.slots("ab", "xy") == [0, 1]
    assert router.slots("abc", "xyz", "abcd", "abc", "xyzz") == [0, 1, 0, 0, 1]


def test_what_was_accepted_counts_as_prompt(router: Routed) -> None:
    router.beat(beat(ONE, slot=0, capacity=9))
    router.beat(beat(TWO, slot=1, capacity=9))
    router.slots("ab")
    continued = replace(request(7, "resume", prompt="a"), accepted=request(7, prompt="bc").prompt)
    assert sent(router(BACKLOGS["resume"], continued, T0, reply_id(7))) == [(0, reply_id(7))]


def test_a_conversation_moves_when_its_replica_has_much_more_to_do_or_no_room(router: Routed) -> None:
    router.beat(beat(ONE, slot=0, capacity=9))
    router.slots("ab")
    router.beat(beat(TWO, slot=1, capacity=9))
    assert router.slots(*["ab"] * (MOST_IMBALANCE + 1)) == [0] * MOST_IMBALANCE + [1]
    router.beat(beat(ONE, slot=0, capacity=1, running=1, waiting=1, read={"paid": 9}))
    router.beat(beat(TWO, slot=1, capacity=9, running=1, read={"paid": 9}))
    assert router.slots("ab") == [1]


def test_the_prefixes_of_who_is_replaced_or_leaves_are_forgotten_at_once(router: Routed) -> None:
    for slot, incarnation in enumerate((ONE, TWO, THREE)):
        router.beat(beat(incarnation, slot=slot, capacity=9))
    assert router.slots("a", "b", "c") == [0, 1, 2]
    router.beat(beat(Incarnation("next"), slot=0, capacity=9))
    router.beat(beat(TWO, slot=1, capacity=9, state="draining"))
    named = [packed_prefix_hashes(request(1, prompt=prompt).prompt, request(1).account) for prompt in "abc"]
    affinity = router.stage._affinity
    assert list(map(affinity.blocks, (ONE, TWO, THREE), named)) == [0, 0, 1]


@pytest.mark.parametrize("how", ["replaced", "silent"])
def test_a_replica_that_started_again_is_not_sought_for_what_it_had(router: Routed, how: str) -> None:
    router.beat(beat(ONE, slot=0, capacity=9))
    router.slots("ab")
    if how == "replaced":
        router.beat(beat(THREE, slot=0, capacity=9, running=1))
    else:
        for _ in range(SILENT_BEATS):
            router.beat(SupervisorBeat(Incarnation("watch")))
        router.beat(beat(ONE, slot=0, capacity=9, running=1, read={"paid": 1}))
    router.beat(beat(TWO, slot=1, capacity=9))
    assert router.slots("abc") == [1]


@pytest.mark.parametrize("offset", [10**15, -(10**15), 2**63 - 1, -(2**63)])
def test_a_lane_offset_that_is_none_stops_nothing_for_longer_than_a_beat(router: Routed, offset: int) -> None:
    router.beat(beat(capacity=1, read={"paid": 5}))
    router.ask(1)
    router.beat(beat(capacity=1, running=9, read=offset))
    router.beat(beat(capacity=1, running=1, read={"paid": 6}))
    assert replies(router.ask(2)) == [reply_id(2)]
    assert replies(router.ask(3)) == []
    assert replies(router.beat(beat(capacity=1, running=1, read={"paid": 7}))) == [reply_id(3)]


@pytest.mark.parametrize(
    "nonsense",
    [
        beat(TWO, slot=9999, capacity=9),
        beat(TWO, slot=-5, capacity=9),
        beat(TWO, slot=2**63 - 1, capacity=9),
        replace(beat(TWO, slot=1, capacity=9), pool="nowhere"),
        beat(Incarnation("x" * 500_000), slot=1, capacity=9),
        beat(TWO, slot=1, capacity=9, running=-(2**63)),
    ],
    ids=["far", "negative", "huge", "pool", "name", "load"],
)
def test_a_beat_of_no_replica_gets_nothing_and_costs_nothing(router: Routed, nonsense: ReplicaBeat) -> None:
    router.ask(1)
    assert sent(router.beat(nonsense)) == []
    assert sent(router.beat(beat(ONE))) == [(0, reply_id(1))]


def test_unknown_tiers_in_a_beat_mean_nothing(router: Routed) -> None:
    odd = (LanePosition("nonsense", 2**63 - 1), LanePosition("paid", 0))
    router.beat(replace(beat(capacity=1), lanes=odd))
    assert replies(router.ask(1)) == [reply_id(1)]


@pytest.mark.parametrize("shared", [True, False], ids=["one prefix", "a prefix each"])
def test_what_a_dead_replica_leaves_spreads_over_the_living_by_the_places_they_have(
    router: Routed, shared: bool
) -> None:
    prompts = ["abc" if shared else chr(0x100 + n) for n in range(64)]
    router.beat(beat(Incarnation("dead"), slot=3, capacity=99))
    assert router.slots(*prompts) == [3] * 64
    for _ in range(SILENT_BEATS):
        router.beat(SupervisorBeat(Incarnation("watch")))
    for slot, (incarnation, capacity, running) in enumerate(((ONE, 63, 0), (TWO, 31, 0), (THREE, 63, 32))):
        router.beat(beat(incarnation, slot=slot, capacity=capacity, running=running))
    orphans = [router.ask(n, "resume", prompt=prompt) for n, prompt in enumerate(prompts)]
    spread = Counter(slot for orphan in orphans for slot, _ in sent(orphan))
    fair = {0: 38.4, 1: 19.2, 2: 6.4}  # so that each is as full as the others
    assert spread.total() == 64
    assert all(abs(spread[slot] - share) <= MOST_IMBALANCE + 1 for slot, share in fair.items()), spread


def test_a_slot_that_a_stranger_took_comes_back_with_its_next_incarnation(router: Routed) -> None:
    router.beat(beat(ONE))
    router.beat(beat(Incarnation("stranger"), capacity=0, running=9))
    assert sent(router.beat(beat(ONE, capacity=9))) == sent(router.ask(1)) == []
    assert sent(router.beat(beat(THREE, capacity=9))) == [(0, reply_id(1))]


def test_a_request_that_no_lane_could_hold_is_refused_and_costs_nobody_else_theirs(router: Routed) -> None:
    router.ask(1)
    with pytest.raises(ValueError, match="where a lane takes"):
        router.stage.apply(Message(BACKLOGS["paid"], 1, T0, b"", request(2), LARGEST_REQUEST + 1))
    router.ask(3)
    assert replies(router.beat(beat(capacity=9))) == [reply_id(1), reply_id(3)]
