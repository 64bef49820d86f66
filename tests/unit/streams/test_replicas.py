"""Who is alive, by the order of beats in the log alone."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.events import AttemptDropped, SupervisorBeat
from schemas.ids import Incarnation
from streams.replicas import BEAT_AFTER_S, SILENT_BEATS, STUCK_LEAST_S, Replicas
from tests.unit.streams.staged import ONE, ROUTES, TWO, beat, reply_id

WATCH, OTHER = Incarnation("watch"), Incarnation("other")


def seen(*beats: object) -> Replicas:
    replicas = Replicas(ROUTES)
    for one in beats:
        replicas.apply(SupervisorBeat(one) if isinstance(one, str) else one)
    return replicas


def alive(replicas: Replicas) -> list[Incarnation]:
    return [one.incarnation for one in replicas.alive("main")]


def test_a_replica_lives_until_three_beats_of_one_supervisor_have_followed_its_last() -> None:
    quiet = [beat(ONE), *(WATCH, OTHER) * (SILENT_BEATS - 1)]
    assert alive(seen(*quiet)) == [ONE]
    assert alive(seen(*quiet, WATCH)) == []
    assert alive(seen(*quiet, WATCH, beat(ONE))) == [ONE]


def test_only_the_supervisors_own_beats_let_it_fence() -> None:
    replicas = seen(beat(ONE), *[OTHER] * SILENT_BEATS, WATCH, WATCH)
    assert replicas.dead(ONE, OTHER)
    assert not replicas.dead(ONE, WATCH)
    replicas.apply(SupervisorBeat(WATCH))
    assert replicas.dead(ONE, WATCH)


def test_a_replaced_incarnation_is_dead_at_once_and_never_comes_back() -> None:
    replicas = seen(beat(ONE), beat(TWO))
    assert (replicas.dead(ONE, WATCH), replicas.dead(TWO, WATCH)) == (True, False)
    assert not replicas.apply(beat(ONE))
    assert alive(replicas) == [TWO]


def test_an_incarnation_without_a_beat_is_dead_three_beats_after_it_was_missed() -> None:
    replicas = seen(*[WATCH] * 9)
    missed = []
    for _ in range(SILENT_BEATS + 1):
        missed.append(replicas.dead(ONE, WATCH))
        replicas.apply(SupervisorBeat(WATCH))
    assert missed == [False] * SILENT_BEATS + [True]
    replicas.apply(beat(ONE))
    assert not replicas.dead(ONE, WATCH)


def test_a_stuck_replica_that_beats_on_is_not_alive_between_the_supervisors_beats() -> None:
    at_work, patience = beat(ONE, running=1, step=7), round(STUCK_LEAST_S / BEAT_AFTER_S)
    stuck = [at_work, *(WATCH, at_work) * patience]
    assert alive(seen(*stuck[:-2])) == [ONE]
    assert alive(seen(*stuck)) == alive(seen(*stuck, OTHER, at_work)) == []
    assert alive(seen(*stuck, beat(ONE, running=1, step=8))) == [ONE]


def test_slots_and_pools_are_apart() -> None:
    replicas = seen(beat(TWO, slot=1), beat(ONE, slot=0))
    assert alive(replicas) == [ONE, TWO]
    assert list(replicas.alive("other")) == []


def test_only_the_last_beat_says_what_was_dropped() -> None:
    dropped = (AttemptDropped(reply_id(1), 2),)
    replicas = seen(beat(ONE, dropped=dropped))
    assert replicas.dropped(ONE, reply_id(1), 2)
    assert not replicas.dropped(ONE, reply_id(1), 1)
    replicas.apply(beat(ONE))
    assert not replicas.dropped(ONE, reply_id(1), 2)


@given(beats=st.lists(st.sampled_from((WATCH, OTHER, beat(ONE), beat(TWO, slot=1)))), cut=st.integers(0, 20))
def test_whoever_reads_on_from_an_expired_beginning_fences_nobody_sooner(beats: list[object], cut: int) -> None:
    """Beats that have expired can only make a reader more patient: it has counted less."""
    whole, rest = seen(beat(ONE), beat(TWO, slot=1), *beats), seen(*beats[cut:])
    for replica in (ONE, TWO):
        if not whole.dead(replica, WATCH):
            assert not rest.dead(replica, WATCH)
