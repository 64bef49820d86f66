"""Ten thousand requests that come, are aborted, repeated, refused, preempted and lost leave nothing behind."""

import gc
import sys
from dataclasses import astuple

from engine.dropped import GIVEN_UP_BEATS, NAMED_BEATS
from schemas.events import AbortReply, Sampling, pack_ids
from schemas.tokenizer import ChatTokenizer, PromptTurn
from tests.unit.engine.replica_rig import ONE, Rig, reply_id
from topics.catalog import REPLIES

REQUESTS, ROUND = 10_000, 50
# Objects; a reply that is left behind holds a dozen of them, so one in fifty would be 2,400.
SPARE = 1_000


def churn(rig: Rig, first: int, requests: int) -> int:
    """How many objects there are after so many requests; what the log itself keeps is deleted after each round."""
    texts = ("hey", "a longer text", "né", "other")
    prompts = [pack_ids(rig.tokenizer.prompt([PromptTurn("user", rig.tokenizer.encode(text))])) for text in texts]
    for start in range(first, first + requests, ROUND):
        for n in range(start, start + ROUND):
            reply = rig.assign(n, sampling=Sampling(1 + n % 9), prompt=prompts[n % 4])
            if n % 2:
                rig.tell(AbortReply(reply, 1, ONE))
            elif n % 5 == 0:
                rig.assign(n, prompt=prompts[n % 4])
            if n % 10 == 0:
                rig.assign(n + 10 * REQUESTS, prompt=b"")
        rig.run(2)
        rig.log.fail_deliveries(REPLIES, start // ROUND % 3)
        for n in range(start, start + ROUND, 20):
            rig.tell(AbortReply(reply_id(n), 1, ONE))
        rig.run_out()
        forget(rig)
    gc.collect()
    return sys.getallocatedblocks()


def forget(rig: Rig) -> None:
    """The supervisor fences what was dropped, half an hour passes, and retention deletes what the log holds."""
    for beats in (NAMED_BEATS, GIVEN_UP_BEATS):
        for drop in rig.replica.load.dropped:
            rig.tell(AbortReply(drop.reply, drop.attempt, ONE))
        rig.tell(AbortReply(reply_id(20 * REQUESTS), 1, ONE))
        rig.run()
        rig.replica.supervisor_beats += beats
    rig.replica.note()
    rig.seen_positions.clear()
    for place, partition in rig.log.places.items():
        rig.log.delete_before(place, partition.end)


def test_ten_thousand_requests_leave_nothing_behind(tiny_tokenizer: ChatTokenizer) -> None:
    rig = Rig(tiny_tokenizer, capacity=8, blocks=12, recomputations=1)
    before = churn(rig, 0, 500)
    assert churn(rig, 500, REQUESTS - 500) - before < SPARE
    replica, engine = rig.replica, rig.replica._engine
    blocks, dropped = engine._scheduler.blocks, replica._dropped
    left = replica._jobs, engine._sequences, engine._runner._replies, dropped._given_up, dropped._aborted  # type: ignore[attr-defined]
    assert [len(each) for each in left] == [0] * 5
    assert (replica.load.running, replica.load.waiting, blocks.num_free) == (0, 0, 12)
    assert [block.ref_count for block in blocks.blocks] == [0] * 12
    ends = replica.requests
    assert sum(astuple(ends)) == REQUESTS + ends.refused
    assert ends.aborted >= REQUESTS // 2 and ends.refused == REQUESTS // 10
    assert min(ends.stopped, ends.full, ends.dropped) > 100
