"""What leaves a stage: bytes that its topic takes, or an error before anything is sent."""

from dataclasses import replace

import pytest

from schemas.codec import Codec
from schemas.events import DeadLettered, GenerateAssigned, Origin
from schemas.ids import Incarnation
from schemas.reply_records import AttemptOpened, Failed
from tests.unit.streams.staged import ONE, reply_id, request
from topics.catalog import LARGEST_RECORD, USUAL_RECORD, Sizes
from topics.outputs import LETTER_KEY_BYTES, LETTER_VALUE_BYTES, Encoder, Routes, dead_letter

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


def test_what_its_topic_would_not_take_is_an_error_before_it_is_sent() -> None:
    encoder, routes = Encoder(Codec(), Sizes(), Incarnation("w")), Routes(Sizes())
    for reason in ("x" * USUAL_RECORD, "x" * (USUAL_RECORD - 100)):
        with pytest.raises(ValueError, match=r"Failed of 10.* bytes: replies takes 1048588"):
            encoder.append(routes.reply(reply_id(1), Failed(reason)))
    assert encoder.append(routes.reply(reply_id(1), Failed("x" * (USUAL_RECORD - 1024)))).value
    with pytest.raises(ValueError, match="does not fit in 64 bits"):
        encoder.append(routes.reply(reply_id(1), AttemptOpened(2**63)))


@pytest.mark.parametrize("slot", [-1, 32, 9999])
def test_no_record_goes_to_a_replica_or_a_backlog_that_the_cell_does_not_have(slot: int) -> None:
    routes, asked = Routes(Sizes()), request(1)
    with pytest.raises(ValueError, match=f"no replica main/{slot}"):
        routes.lane(slot, GenerateAssigned(ONE, ORIGIN, asked))
    with pytest.raises(ValueError, match=r"no backlog generate\.main\.golden"):
        routes.generate(replace(asked, tier="golden"))
    assert routes.lane(31, GenerateAssigned(ONE, ORIGIN, asked)).place.partition == 31
