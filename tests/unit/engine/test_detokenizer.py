"""Text out of tokens. Here a token is a byte string of its own, so a test can cut a text anywhere."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.detokenizer import Detokenizer, Piece

STOPS = st.lists(st.text("abc", min_size=1, max_size=4), max_size=3).map(tuple)
PIECES = st.lists(st.one_of(st.binary(max_size=3), st.text("abcé", max_size=4).map(str.encode)), max_size=12)


def shown(pieces: list[bytes], stop: tuple[str, ...]) -> str:
    """All the text of a reply that ends after `pieces`, or at a stop string."""
    detokenizer = Detokenizer(pieces.__getitem__, stop)
    text = ""
    for n in range(len(pieces)):
        piece = detokenizer.push(n)
        text += piece.text
        if piece.stopped:
            return text
    return text + detokenizer.flush()


def cut(text: str, stop: tuple[str, ...]) -> str:
    """What may be shown of a text: up to the stop string that is complete first."""
    for end in range(len(text) + 1):
        for word in sorted(stop, key=len, reverse=True):
            if text[:end].endswith(word):
                return text[: end - len(word)]
    return text


@given(pieces=PIECES, stop=STOPS)
@example(pieces=[b"a", b"a", b"a", b"b"], stop=("aab",))
@example(pieces=[b"abcd"], stop=("bc", "abcd"))
def test_the_text_is_the_whole_text_up_to_the_first_stop(pieces: list[bytes], stop: tuple[str, ...]) -> None:
    text = shown(pieces, stop)
    assert text == cut(b"".join(pieces).decode(errors="replace"), stop)
    assert not any(word in text for word in stop)


@given(pieces=PIECES, stop=STOPS)
def test_the_text_does_not_depend_on_how_it_is_cut_into_tokens(pieces: list[bytes], stop: tuple[str, ...]) -> None:
    whole = b"".join(pieces)
    assert shown(pieces, stop) == shown([whole[n : n + 1] for n in range(len(whole))], stop)


@given(pieces=PIECES, stop=STOPS, at=st.integers(0, 12))
def test_replayed_tokens_rebuild_the_state(pieces: list[bytes], stop: tuple[str, ...], at: int) -> None:
    unbroken, rebuilt = (Detokenizer(pieces.__getitem__, stop) for _ in range(2))
    before = [unbroken.push(n) for n in range(len(pieces[:at]))]
    assert [rebuilt.push(n) for n in range(len(before))] == before
    after = range(len(before), len(pieces))
    assert [rebuilt.push(n) for n in after] == [unbroken.push(n) for n in after]
    assert rebuilt.flush() == unbroken.flush()


def test_half_a_character_waits_for_its_other_half() -> None:
    detokenizer = Detokenizer([b"caf\xc3", b"\xa9!"].__getitem__)
    assert detokenizer.push(0) == Piece("caf")
    assert detokenizer.holding
    assert detokenizer.push(1) == Piece("é!")
    assert not detokenizer.holding


def test_a_stop_string_may_lie_across_tokens() -> None:
    detokenizer = Detokenizer([b"one E", b"N", b"D two"].__getitem__, ("END",))
    assert [detokenizer.push(n) for n in range(3)] == [Piece("one "), Piece(""), Piece("", stopped=True)]


def test_a_beginning_that_never_becomes_a_stop_is_shown_at_the_end() -> None:
    detokenizer = Detokenizer([b"a EN", b"\xe2\x82"].__getitem__, ("END",))
    assert detokenizer.push(0).text + detokenizer.push(1).text == "a "
    assert detokenizer.flush() == "EN�"


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty stop"):
        Detokenizer([b"a"].__getitem__, ("",))
