"""What leaves a stage: a letter that always fits into its topic."""

from schemas.codec import Codec
from schemas.events import DeadLettered, Origin
from schemas.ids import Incarnation
from topics.catalog import LARGEST_RECORD, Sizes
from topics.outputs import LETTER_KEY_BYTES, LETTER_VALUE_BYTES, Encoder, dead_letter

ORIGIN = Origin("messages", 3, 7)


def test_a_letter_of_the_largest_record_fits_and_says_what_was_cut() -> None:
    record = b"k" * LARGEST_RECORD
    output = dead_letter(DeadLettered(ORIGIN, "intake", "no record" * 10_000, record, record))
    append = Encoder(Codec(), Sizes(), Incarnation("w")).append(output)
    cut = f"{LARGEST_RECORD - LETTER_KEY_BYTES} bytes of the key and {LARGEST_RECORD - LETTER_VALUE_BYTES} of the value"
    assert output.event.error.endswith(f"; {cut} are not in this letter")
    assert append.value is not None and len(append.value) < LARGEST_RECORD - 500_000
    assert output.event.origin == ORIGIN


def test_a_letter_that_fits_is_left_as_it_is() -> None:
    for key, value in ((b"alice", b"rubbish"), (None, None), (b"", b"x" * LETTER_VALUE_BYTES)):
        letter = DeadLettered(ORIGIN, "intake", "no record", key, value)
        assert dead_letter(letter).event == letter
