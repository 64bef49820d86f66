"""The router: which replica gets which request, and when."""

from collections import deque
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.events import AttemptDropped, ReplicaBeat, SupervisorBeat
from schemas.ids import Incarnation, ReplyId
from schemas.reply_records import Dispatched, Failed, Shed
from streams.replicas import BEAT_AFTER_S, SILENT_BEATS, STUCK_LEAST_S
from streams.router import LANE_DEPTH
from streams.stage import Decision, Message
from tests.unit.streams.routing import BACKLOGS, Routed, replies, sent
from tests.unit.streams.staged import ONE, T0, TWO, beat, events, reply_id, request
from topics.catalog import REPLIES, generate_topic, lane_topic
from topics.log import Place


@pytest.fixture
def router() -> Routed:
    return Routed()


def test_nothing_is_sent_before_there_is_room(router: Routed) -> None:
    assert sent(router.ask(1)) == []
    assert sent(router.beat(beat(capacity=1, running=1, waiting=1))) == []
    assert sent(router.beat(beat(capacity=1, running=1))) == [(0, reply_id(1))]


def test_a_request_goes_to_its_lane_and_its_reply_is_told_whose_it_is(router: Routed) -> None:
    router.beat(beat(slot=2))
    decision = router.ask(7, "free")
    [lane, told] = decision.first
    assert lane.place == Place(lane_topic("main", "free"), 2)
    assert told.event == Dispatched(1, "main/2", ONE, lane.event.origin)
    assert (lane.event.incarnation, lane.event.origin.topic) == (ONE, generate_topic("main", "free"))


def test_tiers_go_in_their_order_and_each_in_its_own(router: Routed) -> None:
    asked = [("background", 1), ("free", 2), ("free", 3), ("paid", 4), ("resume", 5), ("paid", 6)]
    for tier, n in asked:
        router.ask(n, tier)
    assert replies(router.beat(beat(capacity=5))) == [reply_id(n) for n in (5, 4, 6, 2, 3, 1)]


def test_the_one_with_the_most_room_is_chosen(router: Routed) -> None:
    router.beat(beat(ONE, slot=0, capacity=4, running=2))
    router.beat(beat(TWO, slot=1, capacity=4))
    slots = [slot for n in range(6) for slot, _ in sent(router.ask(n))]
    assert slots == [1, 1, 0, 1, 0, 1]


def test_who_has_dropped_a_reply_is_given_it_again_only_if_nobody_else_has_room(router: Routed) -> None:
    router.beat(replace(beat(ONE, slot=0, capacity=9), dropped=(AttemptDropped(reply_id(1), 1),)))
    router.beat(beat(TWO, slot=1, capacity=1, running=1))
    assert sent(router.ask(1, "resume")) == [(1, reply_id(1))]
    assert sent(router.ask(2)) == [(0, reply_id(2))]
    assert sent(router.ask(1, "resume")) == [(0, reply_id(1))]


def test_a_beat_does_not_free_what_it_has_not_read(router: Routed) -> None:
    router.beat(beat(capacity=1))
    assert len(replies(router.ask(1)) + replies(router.ask(2)) + replies(router.ask(3))) == 1 + LANE_DEPTH
    assert sent(router.beat(beat(capacity=1))) == []
    assert sent(router.beat(beat(capacity=1, running=1, read={"paid": 1}))) == []
    assert replies(router.beat(beat(capacity=1, running=1, read={"paid": 2}))) == [reply_id(3)]


def test_beyond_the_limit_a_request_is_shed_with_a_time_to_come_back() -> None:
    router = Routed(limit=2)
    assert not any(router.ask(n).first for n in range(2))
    [shed] = events(router.ask(2).first)
    assert isinstance(shed, Shed) and shed.retry_after_ms >= 1000
    assert router.ask(3, "free").first == ()


def test_a_reply_that_had_begun_is_never_shed() -> None:
    router = Routed(limit=1)
    assert not any(router.ask(n, "resume").first for n in range(3))
    assert len(sent(router.beat(beat(capacity=2)))) == 3


def test_the_time_to_come_back_grows_with_the_backlog_and_its_pace() -> None:
    def retry_ms(pace_ms: int, waiting: int) -> int:
        router = Routed(limit=waiting)
        for n in range(40):
            router.beat(beat(capacity=1, read={"paid": n}))
            router.ask(n, at_ms=T0 + n * pace_ms)
        router.beat(beat(capacity=1, running=2, read={"paid": 40}))
        return [router.ask(n) for n in range(waiting + 1)][-1].first[0].event.retry_after_ms

    assert retry_ms(100, 20) < retry_ms(1_000, 20) < retry_ms(1_000, 60) < retry_ms(9_000, 60) == 120_000


def test_the_committed_position_is_that_of_the_oldest_unsent_request(router: Routed) -> None:
    router.beat(beat(capacity=1))
    assert router.committed("paid") == 0
    for n in range(5):
        router.ask(n)
    assert router.committed("paid") == 2
    router.beat(beat(capacity=9, read={"paid": 2}))
    assert (router.committed("paid"), router.committed("free")) == (5, 0)


@pytest.mark.parametrize("reason", ["draining", "silent", "stuck", "replaced", "of another pool"])
def test_who_leaves_gets_nothing(router: Routed, reason: str) -> None:
    router.beat(beat(ONE, capacity=1, running=9))
    match reason:
        case "draining":
            router.beat(beat(ONE, capacity=1, state="draining"))
        case "silent":
            router.beat(beat(ONE, capacity=1))
            for _ in range(SILENT_BEATS):
                router.beat(SupervisorBeat(Incarnation("watch")))
        case "stuck":
            for _ in range(2 + round(STUCK_LEAST_S / BEAT_AFTER_S)):
                router.beat(beat(ONE, capacity=9, running=1))
                router.beat(SupervisorBeat(Incarnation("watch")))
            router.beat(beat(ONE, capacity=9, running=1))
        case "replaced":
            router.beat(beat(TWO, capacity=1, running=9))
            router.beat(beat(ONE, capacity=1))
        case "of another pool":
            router.beat(replace(beat(TWO, slot=1), pool="other"))
    assert sent(router.ask(1)) == []


def test_a_late_beat_of_a_replaced_incarnation_frees_nothing(router: Routed) -> None:
    router.beat(beat(ONE))
    router.beat(beat(TWO, capacity=1))
    assert [len(sent(router.ask(n))) for n in range(3)] == [1, 1, 0]
    assert sent(router.beat(beat(ONE, capacity=1))) == []
    assert sent(router.beat(beat(TWO, capacity=1))) == []


def test_a_request_in_the_wrong_topic_fails_its_reply_alone(router: Routed) -> None:
    with pytest.raises(ValueError, match="other/paid"):
        router(BACKLOGS["paid"], request(1, pool="other"))
    refused = router.stage.refused(Message(BACKLOGS["paid"], 0, T0, reply_id(1).encode(), None))
    assert [(output.place.topic, output.event) for output in refused.first] == [(REPLIES, Failed("internal"))]
    assert router.stage.refused(Message(BACKLOGS["paid"], 0, T0, b"no reply", None)).first == ()


class Model:
    """A replica that does what it does between beats; `in_hand` is what it has and what lies in its lane."""

    def __init__(self, slot: int, capacity: int) -> None:
        self.slot, self.capacity = slot, capacity
        self.sent = self.read = self.done = 0
        self.beats: deque[ReplicaBeat] = deque()

    def act(self, what: str) -> None:
        if what == "read":
            self.read = self.sent
        elif what == "done":
            self.done = min(self.done + 1, self.read)
        else:
            in_hand = self.read - self.done
            running = min(in_hand, self.capacity)
            load: Any = {"running": running, "waiting": in_hand - running, "read": {"paid": self.read}}
            self.beats.append(beat(Incarnation(f"of-{self.slot}"), self.slot, capacity=self.capacity, **load))


@given(
    capacities=st.lists(st.integers(1, 3), min_size=1, max_size=2),
    steps=st.lists(st.tuples(st.sampled_from(("ask", "read", "done", "beat", "hear")), st.integers(0, 1)), max_size=60),
)
def test_late_beats_never_overfill_a_replica(capacities: list[int], steps: list[tuple[str, int]]) -> None:
    router, replicas = Routed(), [Model(slot, capacity) for slot, capacity in enumerate(capacities)]
    for n, (what, which) in enumerate(steps):
        replica = replicas[which % len(replicas)]
        decision = Decision()
        if what == "ask":
            decision = router.ask(n)
        elif what == "hear" and replica.beats:
            decision = router.beat(replica.beats.popleft())
        else:
            replica.act(what)
        for slot, _ in sent(decision):
            replicas[slot].sent += 1
        assert all(one.sent - one.done <= one.capacity + LANE_DEPTH for one in replicas)


def test_a_request_past_its_deadline_is_left_to_the_supervisor(router: Routed) -> None:
    for n in (1, 2):
        router(BACKLOGS["paid"], replace(request(n), deadline_ms=T0), T0, reply_id(n))
    router.ask(3)
    assert replies(router.beat(beat(capacity=9), at_ms=T0 + 1)) == [reply_id(3)]
    assert router.committed("paid") == 3


def test_a_request_for_no_reply_is_refused_before_it_can_cost_others_theirs(router: Routed) -> None:
    router.ask(1)
    with pytest.raises(ValueError, match="names no reply"):
        router(BACKLOGS["paid"], replace(request(2), reply=ReplyId("garbage")), T0, "garbage")
    assert replies(router.beat(beat(capacity=9))) == [reply_id(1)]
