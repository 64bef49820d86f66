"""What is seen of a stage: counts, ages, queues and ends, and whether it is ready."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas import reply_records as r
from schemas.events import DeadLettered, Origin
from streams.router import Router
from streams.runtime.metrics import LAG_SHOWN_S, Lag, StageMeters, StageMetrics
from streams.runtime.runner import Runner, Shell
from streams.runtime.watch import Watch
from streams.settlement import Settlement
from streams.stage import Stage
from tests.unit.streams.cells import CODEC, AtOnce, Cell
from tests.unit.streams.staged import ROUTES, SIZES, T0, accepted, beat, finished, reply_id, started, tokens
from tests.unit.streams.test_router import request
from topics.catalog import DEAD_LETTERS, REPLIES
from topics.log import Place
from topics.outputs import Output
from topics.schemas import Decoder
from topics.telemetry.watched import WatchedEncoder


class Seen:
    """A cell whose one stage is watched; its clock stands where the test puts it."""

    def __init__(self, stage: Stage) -> None:
        self.cell, self.now_s = Cell(SIZES), T0 / 1000
        self.metrics = StageMetrics(stage.name, StageMeters(), lambda: self.now_s, lambda: self.now_s)
        self.watch = Watch(self.metrics)
        writer = self.cell.encoder()._writer
        encoder = WatchedEncoder(CODEC, SIZES, writer, self.metrics.wrote)
        decoder = Decoder(self.cell.log, CODEC)
        self.runner = Runner(stage, Shell(self.cell.log, decoder, encoder, AtOnce(), watch=self.watch))

    def step(self, times: int = 4) -> None:
        self.cell.step(self.runner, times=times)

    def __call__(self, name: str, **labels: Any) -> float | None:
        return self.metrics.meters.registry.get_sample_value(f"laneway_{name}", {k: str(v) for k, v in labels.items()})


@pytest.fixture
def router() -> Seen:
    return Seen(Router("main", 100, ROUTES))


@pytest.fixture
def settlement() -> Seen:
    return Seen(Settlement(ROUTES))


def test_a_queue_shows_how_many_wait_and_for_how_long(router: Seen) -> None:
    router.cell.write(*(ROUTES.generate(request(n, "free")) for n in range(3)))
    router.now_s += 7
    router.step()
    assert router("queue_requests", pool="main", tier="free") == 3
    assert router("queue_age_seconds", pool="main", tier="free") == pytest.approx(7)
    paid = {"pool": "main", "tier": "paid"}
    assert router("queue_requests", **paid) == router("queue_age_seconds", **paid) == 0


def test_what_is_dispatched_leaves_the_queue_and_replicas_are_counted(router: Seen) -> None:
    router.cell.write(ROUTES.generate(request(1)), ROUTES.replica_beat("main/0", beat(capacity=2)))
    router.cell.write(ROUTES.replica_beat("main/1", beat(slot=1, state="draining")))
    router.step()
    assert router("queue_requests", pool="main", tier="paid") == 0
    assert router("stage_records_written_total", stage="router.main", record="Dispatched") == 1
    states = [router("replicas", pool="main", state=state) for state in ("ready", "draining")]
    assert states == [1, 1]


def test_an_end_is_counted_with_its_tokens_and_its_time(settlement: Seen) -> None:
    reply = reply_id(1)
    settlement.cell.write(ROUTES.reply(reply, accepted(reply)))
    settlement.cell.now_ms += 3_000
    settlement.cell.write(*(ROUTES.reply(reply, record) for record in (started(), tokens(1, "abc"), finished(3))))
    settlement.step()
    assert settlement("replies_settled_total", state="finished", reason="stop") == 1
    counted = [settlement("settled_tokens_total", kind=kind) for kind in ("prompt", "cached", "completion")]
    assert counted == [5, 3, 3]
    assert settlement("reply_seconds_sum", tier="paid") == pytest.approx(3)


def test_a_reply_that_another_kind_of_replica_has_continued_is_counted(settlement: Seen) -> None:
    reply, other = reply_id(1), replace(started(2), fingerprint="other")
    records = (accepted(reply), started(), r.AttemptOpened(2), other, finished(0, 2))
    settlement.cell.write(*(ROUTES.reply(reply, record) for record in records))
    settlement.step()
    assert settlement("replies_mixed_total") == 1


def test_lag_is_the_age_of_the_oldest_record_of_a_read_and_passes(settlement: Seen) -> None:
    settlement.cell.write(ROUTES.reply(reply_id(1), accepted(reply_id(1))))
    settlement.now_s += 4
    settlement.step()
    shown = {"stage": "settlement", "topic": REPLIES}
    assert settlement("stage_lag_seconds", **shown) == pytest.approx(4)
    settlement.now_s += 2 * LAG_SHOWN_S
    settlement.step()
    assert settlement("stage_lag_seconds", **shown) == 0
    assert settlement("stage_records_read_total", **shown) == 1


def test_a_peak_of_the_lag_is_shown_until_it_is_old() -> None:
    lag = Lag()
    assert [lag.saw(age, at) for age, at in ((3.0, 0), (1.0, 1), (4.0, 2), (0.0, 7), (0.5, 7.1))] == [3, 3, 4, 4, 0.5]


def test_a_stage_is_ready_once_it_was_given_partitions_and_ages_when_it_stands_still(router: Seen) -> None:
    [reason] = router.watch.missing()
    assert reason.startswith("router.main: no partitions assigned")
    router.step()
    assert router.watch.missing() == []
    assert router("stage_partitions", stage="router.main") == 4
    router.now_s += 30
    assert router("stage_step_age_seconds", stage="router.main") == 30
    assert router("stage_commit_age_seconds", stage="router.main") == 30


def test_bad_and_skipped_records_and_dead_letters_are_counted(settlement: Seen) -> None:
    settlement.cell.raw(Place(REPLIES, 0), b"r/w/0", b"no record")
    settlement.cell.raw(Place(REPLIES, 0), b"r/w/1", None)
    settlement.step()
    counted = ("stage_bad_records_total", "stage_records_skipped_total", "dead_letters_total")
    assert [settlement(name, stage="settlement") for name in counted] == [1, 1, 1]
    assert len(settlement.cell.events(DEAD_LETTERS)) == 1


def test_reasons_that_anybody_may_write_stay_few(router: Seen) -> None:
    for n in range(100):
        router.metrics.wrote(ROUTES.reply(reply_id(n), r.Rejected(f"reason-{n}")))
    router.metrics.wrote(Output(Place(DEAD_LETTERS, 0), "t", DeadLettered(Origin("t", 0, 0), "s", "e", None, None)))
    families = router.metrics.meters.registry.collect()
    [refused] = [family for family in families if family.name == "laneway_messages_refused"]
    assert len({sample.labels["reason"] for sample in refused.samples}) == 33
    assert router("messages_refused_total", reason="other") == 68
