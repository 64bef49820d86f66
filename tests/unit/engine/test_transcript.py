"""What is written of a reply, and when it ends."""

from hypothesis import given
from hypothesis import strategies as st

from engine.detokenizer import Detokenizer
from engine.runner import Logprobs, Sampled
from engine.sequence import Sequence
from engine.transcript import Advance, Token, Transcript
from schemas.events import Sampling
from schemas.ids import ReplyId

EOS = 0


def byte(token_id: int) -> bytes:
    return bytes([token_id])


def sequence(max_tokens: int = 100, stop: tuple[str, ...] = (), accepted: tuple[int, ...] = ()) -> Sequence:
    return Sequence(ReplyId("r"), 1, (9, 9), Sampling(max_tokens=max_tokens, stop=stop), accepted)


def transcript(of: Sequence) -> Transcript:
    return Transcript(of, Detokenizer(byte, of.sampling.stop), frozenset({EOS}))


def written(of: Sequence, ids: bytes, likely: bool = False) -> tuple[list[Token], str | None]:
    """All tokens that are written while `ids` are sampled one after the other, and the reason of the end; if they come
    with log probabilities, each has one of its own."""
    script, tokens = transcript(of), list[Token]()
    for token_id in ids:
        if script.finish_reason is None:
            logprobs = Logprobs(-of.position, ((token_id, -of.position),)) if likely else None
            tokens += script.take(Sampled(token_id, logprobs)).tokens
    return tokens, script.finish_reason


def test_an_end_of_sequence_is_no_part_of_the_reply() -> None:
    reply = sequence()
    assert written(reply, b"hi\x00") == ([Token(ord("h"), "h"), Token(ord("i"), "i")], "stop")
    assert bytes(reply.output) == b"hi"


def test_the_last_allowed_token_ends_with_length() -> None:
    tokens, reason = written(sequence(max_tokens=2), b"hi!")
    assert ([token.text for token in tokens], reason) == (["h", "i"], "length")


def test_the_tokens_of_a_stop_string_count_without_its_text() -> None:
    tokens, reason = written(sequence(stop=("END",)), b"xENDy")
    assert ([token.text for token in tokens], reason) == (["x", "", "", ""], "stop")


def test_a_token_that_holds_text_back_waits_for_the_next() -> None:
    script = transcript(sequence(stop=("END",)))
    assert script.take(Sampled(ord("E"))) == Advance(())
    assert script.take(Sampled(ord("x"))) == Advance((Token(ord("E"), ""), Token(ord("x"), "Ex")))


def test_text_held_back_at_the_end_belongs_to_the_last_token() -> None:
    tokens, _ = written(sequence(stop=("END",)), b"xEN\x00")
    assert [token.text for token in tokens] == ["x", "", "EN"]
    assert written(sequence(max_tokens=1), b"\xc3")[0] == [Token(0xC3, "�")]


@given(
    ids=st.lists(st.sampled_from(b"abE\xc3\xa9"), max_size=12),
    ended=st.booleans(),
    limit=st.integers(1, 14),
    cut=st.integers(0, 12),
)
def test_a_continued_reply_is_written_like_the_unbroken_one(ids: list[int], ended: bool, limit: int, cut: int) -> None:
    sampled, stop = bytes(ids) + bytes([EOS] * ended), ("ab", "EEb")
    tokens, reason = written(sequence(limit, stop), sampled, likely=True)
    assert [token.logprobs and token.logprobs.chosen for token in tokens] == [-n for n in range(len(tokens))]
    accepted = tuple(token.id for token in tokens[:cut])
    continued = sequence(limit, stop, accepted)
    assert written(continued, sampled[len(accepted) :], likely=True) == (tokens[cut:], reason)


def test_an_end_that_was_lost_is_found_again() -> None:
    assert transcript(sequence(max_tokens=2, accepted=tuple(b"hi"))).finish_reason == "length"
    assert transcript(sequence(stop=("hi",), accepted=tuple(b"hi"))).finish_reason == "stop"
    assert transcript(sequence(accepted=tuple(b"hi"))).finish_reason is None
