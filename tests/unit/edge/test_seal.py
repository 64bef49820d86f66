"""A sealed session is what any edge of the cell has made, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.auth import Caller, Pass
from edge.seal import Sealer
from schemas.ids import UserId

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
CALLERS = st.builds(Caller, TEXT.map(UserId), TEXT, TEXT)
SEALER = Sealer(b"cell key")
PASS = Pass(Caller(UserId("alice"), "a", "paid"), "key:aa", 1_000.5)


@given(st.builds(Pass, CALLERS, TEXT, st.floats(0, 1e10)))
def test_every_edge_of_the_cell_reads_what_one_has_sealed(let_in: Pass) -> None:
    sealed = SEALER.seal(let_in)
    assert Sealer(b"cell key").open(sealed) == let_in
    assert Sealer(b"another cell's").open(sealed) is None
    assert sealed.isascii() and not set(sealed) & set(' ",;\\')


@given(st.data())
def test_a_changed_text_is_no_session(data: st.DataObject) -> None:
    sealed = SEALER.seal(PASS)
    at = data.draw(st.integers(0, len(sealed) - 1))
    other = data.draw(st.characters(max_codepoint=255).filter(lambda found: found != sealed[at]))
    assert SEALER.open(sealed[:at] + other + sealed[at + 1 :]) is None
    assert SEALER.open(sealed[:at]) is None


def test_the_csrf_token_belongs_to_one_session() -> None:
    sealed = SEALER.seal(PASS)
    assert SEALER.is_csrf(SEALER.csrf(sealed), sealed)
    assert not SEALER.is_csrf(SEALER.csrf(sealed + "x"), sealed)
    assert not SEALER.is_csrf("", sealed) and not SEALER.is_csrf("\xff", sealed)
    assert SEALER.csrf(sealed) not in sealed
