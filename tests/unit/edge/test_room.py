"""Memory that many share: whatever they ask for, it stays within its bound, and little is always given."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.room import Room, Share

FREE, MOST = 10, 100
SIZES = st.integers(0, 150)


@given(st.lists(st.tuples(st.integers(0, 4), SIZES)))
def test_all_together_hold_at_most_what_is_free_for_each_and_the_room(asked: list[tuple[int, int]]) -> None:
    room, holds = Room(MOST, FREE), [0] * 5
    shares = [Share(room) for _ in holds]
    for who, size in asked:
        if shares[who].fits(size):
            holds[who] = size
        else:
            assert size > holds[who]
        assert room.held == sum(max(0, held - FREE) for held in holds) <= MOST
    for share in shares:
        share.close()
    assert room.held == 0


def test_who_asks_for_little_is_served_however_full_it_is() -> None:
    room = Room(MOST, FREE)
    assert Share(room).fits(MOST + FREE)
    assert Share(room).fits(FREE) and not Share(room).fits(FREE + 1)


def test_what_has_been_given_back_is_not_taken_again() -> None:
    room = Room(MOST, FREE)
    with room.share() as share:
        assert share.fits(50) and room.held == 40
    assert share.fits(50) and room.held == 0
