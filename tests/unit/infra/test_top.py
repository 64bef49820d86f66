"""`laneway top` folds heartbeats and replies, and reads what the metrics ports say."""

from __future__ import annotations

import io

from rich.console import Console

from infra.commands.top import answers
from infra.local.ports import free_ports
from infra.top import SILENT_MS, Folded, Picture, lanes, parse, stages
from infra.top_view import as_tables
from schemas.codec import Codec
from schemas.events import EdgeBeat
from schemas.ids import Incarnation
from tests.unit.streams.staged import ROUTES, T0, accepted, beat, finished, reply_id, started, tokens
from topics.log import Record
from topics.outputs import Output

CODEC = Codec()
METRICS = """\
laneway_queue_requests{tier="paid"} 3
laneway_queue_age_seconds{tier="paid"} 12.5
laneway_stage_lag_seconds{stage="intake",topic="messages"} 0.5
laneway_stage_lag_seconds{stage="intake",topic="replies"} 1.5
laneway_stage_partitions{stage="intake"} 16
laneway_stage_commit_age_seconds{stage="intake"} 0.1
"""


def folded(*written: tuple[int, Output]) -> Folded:
    """What is seen of outputs, each at its milliseconds."""
    seen = Folded(CODEC)
    for offset, (at_ms, output) in enumerate(written):
        key = f"{output.key}/w/{offset}".encode()
        seen.take(Record(output.place, offset, T0 + at_ms, key, CODEC.encode(output.event)))
    return seen


def test_a_reply_is_shown_with_its_state_tokens_and_age() -> None:
    old, new = reply_id(1), reply_id(2)
    records = [accepted(old), started(), tokens(1, "abc"), finished(3)]
    seen = folded(
        *((n, ROUTES.reply(old, record)) for n, record in enumerate(records)), (2_000, ROUTES.reply(new, accepted(new)))
    )
    rows = seen.replies()
    assert [(row.id, row.state.value, row.tokens) for row in rows] == [(new, "QUEUED", 0), (old, "FINISHED", 3)]
    assert [row.age_s for row in rows] == [0, 2]


def test_a_replica_is_shown_with_its_pace_until_it_is_silent() -> None:
    reply, later = reply_id(1), SILENT_MS + 1
    written = [(0, ROUTES.replica_beat("main/0", beat())), (1, ROUTES.reply(reply, tokens(1, "abcde")))]
    [row] = folded(*written).replicas()
    assert (row.beat.slot, row.tokens_per_s) == (0, 1.0)
    edge = ROUTES.edge_beat("e", EdgeBeat(Incarnation("edge-1"), 4))
    assert folded(*written, (later, edge)).replicas() == ()
    assert [(row.incarnation, row.streams) for row in folded(*written, (later, edge)).edges()] == [("edge-1", 4)]


def test_queues_and_lags_come_from_the_metrics_ports() -> None:
    samples = parse(METRICS)
    by_tier = {lane.tier: (lane.queued, lane.age_s) for lane in lanes([samples, parse("")])}
    assert (by_tier["paid"], by_tier["free"]) == ((3, 12.5), (None, None))
    [row] = stages({"stages": samples, "replica-0": parse("")})
    assert (row.process, row.stage, row.partitions, row.lag_s) == ("stages", "intake", 16, 1.5)


def test_the_picture_names_what_does_not_answer_and_shows_no_text_of_users() -> None:
    reply = reply_id(1)
    seen = folded((0, ROUTES.reply(reply, accepted(reply))), (1, ROUTES.reply(reply, tokens(1, "secret"))))
    picture = Picture(lanes([]), seen.replicas(), (), seen.edges(), seen.replies(), ("edge-1: does not answer",))
    shown = io.StringIO()
    Console(width=120, file=shown).print(as_tables(picture))
    text = shown.getvalue()
    assert reply in text and "missing: edge-1: does not answer" in text
    assert "secret" not in text


def test_an_address_where_nobody_listens_does_not_answer() -> None:
    assert not answers(f"127.0.0.1:{free_ports(1)[0]}")
    assert not answers("nonsense")
