"""A replica's heartbeats, and what it takes from those of others: who has its slot, by the order of the log."""

import pytest

from engine.errors import Replaced
from schemas.codec import CodecError
from schemas.events import AttemptDropped, LanePosition, SupervisorBeat
from schemas.ids import Incarnation
from schemas.tokenizer import ChatTokenizer
from tests.unit.engine.replica_rig import CODEC, ONE, Rig, other_beat, reply_id
from topics.catalog import REPLICAS, TIERS
from topics.log import Append, Place

SUPERVISOR = SupervisorBeat(Incarnation("supervisor"))


@pytest.fixture
def rig(tiny_tokenizer: ChatTokenizer) -> Rig:
    return Rig(tiny_tokenizer)


def test_a_heartbeat_tells_the_load(rig: Rig) -> None:
    rig.assign(1, "a long one")
    rig.assign(2, "hey", tier="free")
    rig.run(2)
    beats = rig.beats()
    beats.beat(rig.replica.load)
    [(_, beat)] = rig.events(REPLICAS)
    assert (beat.pool, beat.slot, beat.incarnation, beat.state, beat.capacity) == ("main", 0, ONE, "ready", 2)
    assert beat.free_blocks == rig.replica.load.free_blocks < 200
    assert (beat.running, beat.waiting, beat.step, beat.fingerprint) == (2, 0, 2, rig.replica.fingerprint)
    assert beat.lanes == tuple(LanePosition(tier, tier in ("paid", "free")) for tier in TIERS)


def test_the_last_heartbeat_names_what_was_given_up(rig: Rig) -> None:
    rig.assign(1)
    rig.run()
    beats = rig.beats()
    beats.start()
    rig.replica.draining = True
    rig.replica.drop_all()
    beats.stop()
    last = rig.events(REPLICAS)[-1][1]
    assert (last.state, last.running, last.dropped) == ("draining", 0, (AttemptDropped(reply_id(1), 1),))


def test_a_beat_that_cannot_be_sent_is_told(rig: Rig) -> None:
    told: list[BaseException] = []
    broken = rig.beats(told.append)
    broken.beat = None
    with pytest.raises(TypeError):
        broken.run()
    assert [type(error) for error in told] == [TypeError]


def test_a_later_incarnation_of_the_same_slot_ends_the_replica_and_says_so(rig: Rig) -> None:
    beats = rig.beats()
    for other in (other_beat("two", slot=1), other_beat("two", pool="mini")):
        rig.beat(other)
    beats.beat(rig.replica.load)
    for other in (other_beat("three", slot=1), other_beat("three", pool="mini"), other_beat("one")):
        rig.beat(other)
    beats.look()
    rig.beat(other_beat("four"))
    with pytest.raises(Replaced, match="replica main/0 is four now, no longer one"):
        beats.look()


def test_who_was_there_before_and_speaks_late_replaces_nobody(rig: Rig) -> None:
    for name in ("older", "oldest"):
        rig.beat(other_beat(name))
    beats = rig.beats()
    beats.look()
    beats.beat(rig.replica.load)
    rig.beat(other_beat("oldest"))
    beats.look()
    rig.beat(other_beat("older"))
    beats.look()


def test_the_supervisors_beats_count_from_the_first_own_one(rig: Rig) -> None:
    rig.beat(SUPERVISOR)
    beats = rig.beats()
    beats.look()
    assert rig.replica.supervisor_beats == 0
    beats.beat(rig.replica.load)
    for _ in range(3):
        rig.beat(SUPERVISOR)
    beats.look()
    assert rig.replica.supervisor_beats == 3


def test_bytes_that_are_no_heartbeat_are_passed_over(rig: Rig) -> None:
    rubbish = b"\xc3\x01 rubbish and more"
    with pytest.raises(CodecError):
        CODEC.decode(rubbish)
    rig.log.producer().send(Append(Place(REPLICAS, 0), b"main/0", rubbish))
    beats = rig.beats()
    beats.beat(rig.replica.load)
    rig.beat(SUPERVISOR)
    beats.look()
    assert rig.replica.supervisor_beats == 1


def test_the_beating_thread_ends_and_tells_when_it_is_replaced(rig: Rig) -> None:
    told: list[BaseException] = []
    beats = rig.beats(told.append)
    beats.beat(rig.replica.load)
    rig.beat(other_beat("two"))
    beats.run()
    assert [type(error) for error in told] == [Replaced]
    assert rig.replica.identity.incarnation == ONE
