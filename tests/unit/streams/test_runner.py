"""The runner on the in-memory twin: its order, what it skips, and what is put aside."""

from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest
from fastavro import schemaless_writer

from schemas.avro_schema import Schema, canonical, fingerprint_of, schema_of
from schemas.events import DeadLettered, GenerateRequested, MessagePosted, Origin, SchemaPublished, SupervisorBeat, Tick
from schemas.ids import Incarnation, ReplyId
from schemas.reply_records import Accepted, Failed, Redirected
from schemas.tokenizer import ChatTokenizer
from streams.active import KEPT_IDLE_MS
from streams.intake import Intake
from streams.replicas import SILENT_BEATS
from streams.router import Router
from streams.runtime.runner import COMMIT_PATIENCE_S
from streams.settlement import Settlement
from streams.stage import ContinuationWanted
from streams.supervisor import Supervisor
from tests.unit.streams.cells import CODEC, Cell, DoneMeanwhile, IntakeCell, Never
from tests.unit.streams.staged import ONE, accepted, beat, posted, reply_id, request
from topics.catalog import DEAD_LETTERS, INTAKE_STATE, MESSAGES, REPLICAS, REPLIES, SCHEMAS, generate_topic, lane_topic
from topics.errors import DeliveryFailed, Fenced, Unavailable
from topics.log import Place, Record
from topics.outputs import Output

INBOX = Place(MESSAGES, 0)
PAID = generate_topic("main", "paid")


@pytest.fixture
def cell(tokenizer: ChatTokenizer) -> IntakeCell:
    return IntakeCell(tokenizer)


def newer(**values: Any) -> tuple[Schema, bytes]:
    """A message as a later version writes it, with a field more, and its schema."""
    schema = schema_of(MessagePosted)
    schema["fields"].append({"name": "mood", "type": "string", "default": ""})
    return schema, _written(schema, CODEC.encode(posted(**values)), "merry")


def _written(schema: Schema, encoded: bytes, mood: str) -> bytes:
    stream = BytesIO()
    schemaless_writer(stream, {"type": "record", "name": "M", "fields": schema["fields"][-1:]}, {"mood": mood})
    return b"\xc3\x01" + fingerprint_of(schema) + encoded[10:] + stream.getvalue()


def of_unheard_type(cell: Cell) -> bytes:
    schema = {"type": "record", "name": "Unheard", "namespace": "laneway", "fields": []}
    cell.write(Output(Place(SCHEMAS, 0), "unheard", SchemaPublished(fingerprint_of(schema), canonical(schema))))
    return b"\xc3\x01" + fingerprint_of(schema)


def test_what_is_first_is_acknowledged_before_the_rest_leaves(cell: IntakeCell) -> None:
    runner = cell.intake()
    cell.post(posted(1))
    cell.step(runner, times=3)
    sent = [call for call in cell.log.calls if call.startswith("send") or call == "flush"]
    begin = sent.index(f"send {REPLIES}")
    assert sent[begin : begin + 3] == [f"send {REPLIES}", "flush", f"send {PAID}"]


def test_without_the_first_the_rest_never_leaves_and_the_next_process_does_both(cell: IntakeCell) -> None:
    runner = cell.intake()
    cell.post(posted(1))
    cell.log.fail_deliveries(REPLIES, 1)
    with pytest.raises(DeliveryFailed):
        cell.step(runner, times=3)
    assert (cell.events(PAID), cell.replies()) == ([], {})
    cell.step(cell.intake(), times=3)
    assert [type(event) for event in cell.events(PAID)] == [GenerateRequested]


@pytest.mark.parametrize(("silent_beats", "dispatched"), [(SILENT_BEATS, 0), (SILENT_BEATS - 1, 1)])
def test_a_request_that_comes_with_word_of_a_death_is_not_given_to_the_dead(
    cell: IntakeCell, silent_beats: int, dispatched: int
) -> None:
    runner = cell.runner(Router("main", 9, cell.routes))
    cell.write(cell.routes.replica_beat("main/0", beat()))
    cell.step(runner, times=2)
    mark = cell.routes.replica_beat("supervisor", SupervisorBeat(ONE))
    cell.write(cell.routes.generate(request(1)), *[mark] * silent_beats)
    cell.step(runner)
    assert len(cell.events(lane_topic("main", "paid"))) == dispatched


def test_an_answer_that_is_found_while_the_runner_looks_is_not_lost(cell: IntakeCell) -> None:
    supervisor = Supervisor(ONE, cell.routes)
    answer = cell.routes.reply(reply_id(1), Failed("request_lost"))
    runner = cell.runner(supervisor, perform=lambda _: answer, beside=DoneMeanwhile())
    runner._want((ContinuationWanted(reply_id(1), 2, Origin(PAID, 0, 0), b""),))
    cell.step(runner, times=3)
    assert cell.events(REPLIES) == [Failed("request_lost")]


def test_an_output_that_is_lost_stops_a_stage_that_has_nothing_to_commit(cell: IntakeCell) -> None:
    supervisor = cell.runner(Supervisor(Incarnation("one"), cell.routes))
    cell.log.fail_deliveries(REPLICAS, 1)
    with pytest.raises(DeliveryFailed):
        cell.step(supervisor, times=20)
    cell.step(cell.runner(Supervisor(Incarnation("two"), cell.routes)), times=20)
    assert SupervisorBeat(Incarnation("two")) in cell.events(REPLICAS)


def test_a_transaction_that_fails_stops_the_process(cell: IntakeCell) -> None:
    runner = cell.intake()
    cell.post(posted(1))
    cell.log.fail_deliveries(INTAKE_STATE, 1)
    with pytest.raises(Unavailable):
        cell.step(runner, times=9)


def test_what_was_committed_is_not_done_again(cell: IntakeCell) -> None:
    runner = cell.intake()
    cell.post(posted(1))
    cell.step(runner, times=3)
    runner.close()
    before = len(cell.records(REPLIES))
    cell.step(cell.intake(), times=3)
    assert len(cell.records(REPLIES)) == before


def test_state_comes_back_from_the_changelog_past_tombstones_and_rubbish(cell: IntakeCell) -> None:
    first = cell.intake()
    cell.post(posted(1, conversation="open"), posted(2, conversation="idle", model="none"))
    cell.step(first, times=4)
    cell.now_ms += KEPT_IDLE_MS
    cell.post(posted(3, conversation="other", model="none"))
    cell.step(first, times=4)
    first.close()
    unheard = of_unheard_type(cell)
    for value in (b"rubbish", unheard):
        cell.raw(Place(INTAKE_STATE, 0), b"alice/open", value)
    cell.asked.clear()
    cell.post(posted(4, conversation="open", client_key="key-1"), posted(5, conversation="idle"))
    cell.step(cell.intake(), times=4)
    assert cell.of_replies()[reply_id(4)] == [Redirected(reply_id(1))]
    assert [wanted.conversation for wanted in cell.asked] == ["idle"]


def test_a_conversation_that_was_loading_is_asked_for_again(cell: IntakeCell) -> None:
    def lost(_: object) -> Output:
        return Output(INBOX, "", Tick())

    first = cell.runner(Intake(cell.models, cell.routes), perform=lost)
    cell.post(posted(1))
    cell.step(first, times=4)
    first.close()
    assert cell.last_words() == {}
    cell.step(cell.intake(), times=3)
    assert cell.last_words() == {reply_id(1): Accepted}


def test_bytes_that_are_no_record_are_put_aside_with_their_origin(cell: IntakeCell) -> None:
    cell.raw(INBOX, b"alice", b"rubbish")
    cell.post(posted(1))
    cell.step(cell.intake(), times=3)
    [letter] = cell.events(DEAD_LETTERS)
    assert (letter.origin, letter.stage, letter.key, letter.value) == (
        Origin(MESSAGES, 0, 0),
        "intake",
        b"alice",
        b"rubbish",
    )
    assert cell.last_words() == {reply_id(1): Accepted}


def test_tombstones_and_types_of_a_newer_version_are_skipped(cell: IntakeCell) -> None:
    cell.raw(INBOX, b"alice", None)
    cell.raw(INBOX, b"alice", of_unheard_type(cell))
    cell.post(posted(1))
    cell.step(cell.intake(), times=3)
    assert (cell.events(DEAD_LETTERS), cell.last_words()) == ([], {reply_id(1): Accepted})


@pytest.mark.parametrize("published", [True, False])
def test_an_unknown_schema_is_learnt_from_the_log_or_put_aside(cell: IntakeCell, published: bool) -> None:
    schema, value = newer(n=1)
    runner = cell.intake()
    if published:
        cell.raw(Place(SCHEMAS, 0), b"x", CODEC.encode(SchemaPublished(b"x", "no schema")))
        cell.write(Output(Place(SCHEMAS, 0), "newer", SchemaPublished(fingerprint_of(schema), canonical(schema))))
    cell.raw(INBOX, b"alice", value)
    cell.step(runner, times=3)
    assert cell.last_words() == ({reply_id(1): Accepted} if published else {})
    assert [letter.value for letter in cell.events(DEAD_LETTERS)] == ([] if published else [value])


@pytest.mark.parametrize("value", [b"rubbish", "in the wrong topic"])
def test_a_request_that_cannot_be_decided_is_put_aside_and_its_reply_fails(cell: IntakeCell, value: Any) -> None:
    cell.step(intake := cell.intake(), times=1)
    cell.post(posted(1))
    cell.step(intake, times=3)
    [request] = cell.records(PAID)
    wrong = Place(generate_topic("main", "free"), 0)
    cell.raw(wrong, request.key, request.value if value != b"rubbish" else value)
    cell.write(cell.routes.replica_beat("main/0", beat(ONE)))
    cell.step(cell.runner(Router("main", 9, cell.routes)), times=3)
    assert Failed("internal") in cell.of_replies()[reply_id(1)]
    assert [letter.origin.topic for letter in cell.events(DEAD_LETTERS)] == [wrong.topic]


def test_a_message_for_a_reply_that_the_cell_cannot_have_stops_nothing(cell: IntakeCell) -> None:
    cell.post(posted(1, plan="free"), posted(2))
    cell.post(replace(posted(3), reply=ReplyId("nonsense")), posted(4, client_key="key-2", conversation="c2"))
    cell.step(cell.intake(), times=3)
    assert len(cell.events(DEAD_LETTERS)) == 1
    assert cell.last_words()[reply_id(4)] is Accepted


def test_of_the_readers_of_replies_only_settlement_puts_bad_records_aside(cell: IntakeCell) -> None:
    cell.write(cell.routes.reply(reply_id(1), accepted(reply_id(1))))
    cell.raw(Place(REPLIES, 0), b"x", b"rubbish")
    supervisor = cell.runner(Supervisor(ONE, cell.routes))
    cell.step(supervisor, times=3)
    assert cell.events(DEAD_LETTERS) == []
    for _ in range(2):  # the second folds from the open reply again, and so passes the bad record again
        cell.step(cell.runner(Settlement(cell.routes)), times=3)
        assert [type(letter) for letter in cell.events(DEAD_LETTERS)] == [DeadLettered]


def test_a_replaced_process_is_fenced(cell: IntakeCell) -> None:
    old = cell.intake()
    cell.step(old)
    new = cell.intake()
    cell.step(new)
    cell.post(posted(1))
    with pytest.raises(Fenced):
        cell.step(old)
    cell.step(new, times=3)
    assert cell.last_words() == {reply_id(1): Accepted}


def test_a_record_of_a_partition_that_left_within_the_poll_is_left_to_its_new_owner(cell: IntakeCell) -> None:
    stray = Record(Place(MESSAGES, 5), 0, 0, b"alice", CODEC.encode(posted(1)))
    join = cell.log.group

    def joined(*args: Any) -> Any:
        member = join(*args)
        poll = member.poll
        member.poll = lambda *limits: [*poll(*limits), stray]
        return member

    cell.log.group = joined
    cell.step(cell.intake(), times=3)
    assert (cell.events(DEAD_LETTERS), cell.of_replies()) == ([], {})


def test_a_process_that_was_silent_for_too_long_stops(cell: IntakeCell) -> None:
    silent = cell.intake()
    cell.step(silent)
    cell.log.expel("intake", "0")
    with pytest.raises(Fenced, match="lost 1 partitions"):
        cell.step(silent)


def test_a_commit_that_does_not_end_stops_the_stage(cell: IntakeCell) -> None:
    settlement = cell.runner(Settlement(cell.routes), beside=Never())
    cell.write(cell.routes.reply(reply_id(1), accepted(reply_id(1))))
    for now in (1.0, 2.0, COMMIT_PATIENCE_S):
        settlement.step(now)
    with pytest.raises(Unavailable, match="has not ended"):
        settlement.step(2.5 + COMMIT_PATIENCE_S)
