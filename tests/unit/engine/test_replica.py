"""A replica between its lanes and the reply log."""

from dataclasses import replace

import pytest

from engine.dropped import GIVEN_UP_BEATS, NAMED_BEATS
from engine.load import Requests
from schemas import reply_records as r
from schemas.events import AbortReply, AttemptDropped, DrainRequested, Sampling, pack_ids
from schemas.ids import Incarnation
from schemas.reply import State
from schemas.tokenizer import ChatTokenizer
from tests.unit.engine.replica_rig import ONE, ORIGIN, Rig, folded, reply_id
from topics.catalog import DEAD_LETTERS, REPLIES, lane_topic
from topics.log import Append, Place


@pytest.fixture
def rig(tiny_tokenizer: ChatTokenizer) -> Rig:
    return Rig(tiny_tokenizer)


def test_a_request_becomes_a_start_numbered_tokens_and_an_end(rig: Rig) -> None:
    rig.assign(1, "hey")
    rig.run(4)
    start, *tokens, end = rig.of(1)
    assert start == r.Started(1, "main/0", ONE, rig.replica.fingerprint, ORIGIN, 0)
    assert [(token.first, token.texts) for token in tokens] == [(1, ("h",)), (2, ("e",)), (3, ("y",))]
    assert end == r.Finished(1, ONE, "stop", 3)
    assert folded(1, *rig.of(1)).state is State.FINISHED


def test_the_most_tokens_asked_for_end_a_reply(rig: Rig) -> None:
    rig.assign(1, "hey", sampling=Sampling(2))
    rig.run(2)
    assert rig.of(1)[-1] == r.Finished(1, ONE, "length", 2)


def test_two_run_together_and_a_third_waits_for_a_place(rig: Rig) -> None:
    for n, text in enumerate(("a", "abc", "b")):
        rig.assign(n, text)
    rig.run()
    assert (rig.replica.load.running, rig.replica.load.waiting, rig.kinds(2)) == (2, 1, [])
    rig.run(5)
    assert [folded(n, *rig.of(n)).text for n in range(3)] == ["a", "abc", "b"]
    assert rig.seen_positions[:3] == [[0, 0], [1, 1], [2, 0]]


def test_those_who_wait_go_in_tier_order(tiny_tokenizer: ChatTokenizer) -> None:
    rig = Rig(tiny_tokenizer, capacity=1)
    for n, tier in enumerate(("background", "free", "resume", "paid")):
        rig.assign(n, "x", tier)
    rig.run(9)
    started = [reply for reply, event in rig.events(REPLIES) if isinstance(event, r.Started)]
    assert started == [reply_id(n) for n in (2, 3, 1, 0)]


def test_what_was_meant_for_an_earlier_incarnation_is_ignored(rig: Rig) -> None:
    rig.assign(1)
    rig.replica = rig.start(Incarnation("two"))
    rig.replica.note()
    assert dict(rig.replica.load.lanes)["paid"] == 1
    rig.assign(2, incarnation=ONE)
    rig.tell(DrainRequested(ONE))
    rig.assign(3, incarnation=Incarnation("two"))
    rig.run(4)
    assert {reply for reply, _ in rig.events(REPLIES)} == {reply_id(3)}
    assert not rig.replica.draining


def test_what_came_between_a_death_and_the_next_start_is_never_served(rig: Rig) -> None:
    dead_letter = Append(Place(lane_topic("main", "paid"), 0), reply_id(9).encode(), b"rubbish")
    rig.assign(1)
    rig.run()
    before = rig.of(1)
    for n in (2, 3):
        rig.assign(n)
    rig.log.producer().send(dead_letter)
    rig.replica = rig.start(Incarnation("two"))
    rig.assign(4)
    rig.assign(5, incarnation=Incarnation("two"))
    rig.run_out()
    assert [rig.of(n) for n in (1, 2, 3, 4, 9)] == [before, [], [], [], []]
    assert (rig.kinds(5)[-1], rig.events(DEAD_LETTERS)) == (r.Finished, [])


def test_an_abort_ends_what_runs_and_what_waits_without_a_word(tiny_tokenizer: ChatTokenizer) -> None:
    rig = Rig(tiny_tokenizer, capacity=1)
    running, waiting = rig.assign(1, "a long one"), rig.assign(2)
    rig.run(3)
    before = rig.of(1)
    for reply, attempt, incarnation in ((running, 2, ONE), (running, 1, Incarnation("x"))):
        rig.tell(AbortReply(reply, attempt, incarnation))
    rig.run()
    assert rig.replica.load.running == 1 and len(rig.of(1)) > len(before)
    rig.tell(AbortReply(running, 1, ONE))
    rig.tell(AbortReply(waiting, 1, ONE))
    before = rig.of(1)
    rig.run(2)
    assert (rig.of(1), rig.of(2), rig.replica.idle) == (before, [], True)
    assert {drop.reply for drop in rig.replica.load.dropped} == {running, waiting}


def test_what_was_aborted_is_named_until_the_supervisor_has_seen_it(rig: Rig) -> None:
    forged = AbortReply(rig.assign(1, "a long one"), 1, ONE)
    rig.run()
    for command in (forged, forged, AbortReply(reply_id(9), 1, ONE)):
        rig.tell(command)
    named = []
    for rig.replica.supervisor_beats in range(12):
        rig.tell(forged)
        rig.run()
        named.append(rig.replica.load.dropped)
    assert named == [(AttemptDropped(reply_id(1), 1),)] * NAMED_BEATS + [()] * 2
    assert rig.replica.requests == Requests(aborted=1)


def test_a_reply_whose_record_was_not_delivered_is_dropped_and_named(rig: Rig) -> None:
    rig.assign(1, "a long one")
    rig.run(2)
    rig.log.fail_deliveries(REPLIES, 1)
    rig.run()
    before = rig.of(1)
    rig.assign(2, "hey")
    rig.run(6)
    assert (rig.of(1), rig.kinds(2)[-1]) == (before, r.Finished)
    assert rig.replica.load.dropped == (AttemptDropped(reply_id(1), 1),)
    rig.replica.supervisor_beats = 99
    rig.run()
    assert rig.replica.load.dropped == (AttemptDropped(reply_id(1), 1),)
    rig.tell(AbortReply(reply_id(1), 1, ONE))
    rig.run()
    assert rig.replica.load.dropped == (AttemptDropped(reply_id(1), 1),)
    rig.replica.supervisor_beats += NAMED_BEATS
    rig.run()
    assert rig.replica.load.dropped == ()


def test_an_end_that_was_not_delivered_is_named_too(rig: Rig) -> None:
    rig.assign(1, "x", sampling=Sampling(1))
    rig.log.fail_deliveries(REPLIES, 3)
    rig.run()
    assert (rig.of(1), rig.replica.idle) == ([], True)
    assert rig.replica.load.dropped == (AttemptDropped(reply_id(1), 1),)


def test_a_draining_replica_finishes_what_runs_and_gives_the_rest_away(tiny_tokenizer: ChatTokenizer) -> None:
    rig = Rig(tiny_tokenizer, capacity=1)
    rig.assign(1, "hey")
    rig.assign(2)
    rig.run()
    rig.tell(DrainRequested(ONE))
    rig.assign(3)
    rig.run(4)
    assert (rig.replica.draining, rig.replica.idle, rig.kinds(1)[-1]) == (True, True, r.Finished)
    assert {drop.reply for drop in rig.replica.load.dropped} == {reply_id(2), reply_id(3)}
    assert rig.kinds(2) == rig.kinds(3) == []


def test_giving_up_names_all_that_ran_and_waited(tiny_tokenizer: ChatTokenizer) -> None:
    rig = Rig(tiny_tokenizer, capacity=1)
    rig.assign(1)
    rig.assign(2, attempt=3)
    rig.run()
    rig.replica.drop_all()
    assert rig.replica.load.dropped == (AttemptDropped(reply_id(1), 1), AttemptDropped(reply_id(2), 3))
    assert (rig.replica.load.running, rig.replica.load.waiting) == (0, 0)


def test_each_token_says_how_likely_it_was_if_that_was_asked_for(rig: Rig) -> None:
    held_back = Sampling(50, stop=("ex",), top_logprobs=1)
    rig.assign(1, "hey", sampling=held_back)
    rig.assign(2, "hey", sampling=replace(held_back, top_logprobs=0))
    rig.assign(3, "hey")
    rig.run_out()
    likely = [r.TokenLogprob(piece, 0.0, (r.LikelyToken(piece, 0.0),)) for piece in (b"h", b"e", b"y")]
    assert folded(1, *rig.of(1)).logprobs == dict(enumerate(likely, 1))
    assert [len(token.texts) for token in rig.of(1) if isinstance(token, r.Tokens)] == [1, 2]
    assert folded(2, *rig.of(2)).logprobs == {n: replace(one, top=()) for n, one in enumerate(likely, 1)}
    assert folded(3, *rig.of(3)).logprobs == {}


@pytest.mark.parametrize("cut", range(10))
def test_a_continuation_numbers_on_and_reads_like_the_unbroken_reply(rig: Rig, cut: int) -> None:
    text, sampling, dead = "né STONy", Sampling(50, stop=("STOP",)), Incarnation("dead")
    rig.assign(1, text, sampling=sampling)
    rig.run_out()
    whole = folded(1, *rig.of(1))
    rig.assign(2, text, attempt=2, accepted=pack_ids(whole.ids[:cut]), sampling=sampling)
    rig.run_out()
    said = r.Tokens(1, dead, 1, pack_ids(whole.ids[:cut]), tuple(whole.texts[:cut])) if cut else r.Preempted(1, dead)
    broken = folded(2, r.Started(1, "main/1", dead, "f", ORIGIN, 0), said, r.AttemptOpened(2), *rig.of(2))
    assert (broken.texts, broken.ids, broken.gap) == (whole.texts, whole.ids, False)
    assert broken.state is whole.state is State.FINISHED


def test_a_continuation_of_what_had_ended_says_so_and_computes_nothing(rig: Rig) -> None:
    rig.assign(1, attempt=2, accepted=pack_ids(rig.tokenizer.encode("he")), sampling=Sampling(2))
    rig.run()
    assert rig.of(1)[1:] == [r.Finished(2, ONE, "length", 2)]
    assert (rig.seen_positions, rig.replica.idle) == ([], True)


def test_the_next_turn_starts_with_what_is_cached(rig: Rig) -> None:
    text = "a text that fills some blocks of the cache"
    for n in (1, 2):
        rig.assign(n, text)
        rig.run_out()
    rig.assign(3, text, account="evil")
    rig.run_out()
    cached = [rig.of(n)[0].cached_tokens for n in (1, 2, 3)]
    assert cached[0] == cached[2] == 0
    assert cached[1] >= 48 and cached[1] % 16 == 0


def test_a_preempted_reply_says_so_starts_again_and_reads_the_same(tiny_tokenizer: ChatTokenizer) -> None:
    rig, texts = Rig(tiny_tokenizer, blocks=7), {1: "the older of the two", 2: "the newer of the two"}
    for n, text in texts.items():
        rig.assign(n, text)
    rig.run_out()
    assert [kind for kind in rig.kinds(2) if kind is not r.Tokens] == [r.Started, r.Preempted, r.Started, r.Finished]
    assert {n: folded(n, *rig.of(n)).text for n in texts} == texts
    assert rig.replica.load.free_blocks == 7


def test_a_reply_that_is_preempted_too_often_is_dropped_and_named(tiny_tokenizer: ChatTokenizer) -> None:
    rig = Rig(tiny_tokenizer, blocks=7, recomputations=0)
    for n in (1, 2):
        rig.assign(n, f"{n} of the two replies")
    rig.run_out()
    assert (rig.kinds(1)[-1], rig.kinds(2)[-1]) == (r.Finished, r.Tokens)
    assert rig.replica.load.dropped == (AttemptDropped(reply_id(2), 1),)


def test_an_abort_takes_effect_before_the_next_step(rig: Rig) -> None:
    reply = rig.assign(1)
    rig.tell(AbortReply(reply, 1, ONE))
    rig.run()
    rig.assign(2, "a long one")
    rig.run()
    used = 200 - rig.replica.load.free_blocks
    rig.tell(AbortReply(reply_id(2), 1, ONE))
    rig.run()
    assert (rig.of(1), rig.seen_positions, used > 0, rig.replica.load.free_blocks) == ([], [[0]], True, 200)


def test_a_second_request_for_an_attempt_that_is_here_is_not_computed_again(rig: Rig) -> None:
    rig.assign(1, "hey")
    rig.assign(1, "hey")
    rig.run(2)
    rig.assign(1, "hey")
    rig.run(4)
    assert [kind for kind in rig.kinds(1) if kind is r.Started] == [r.Started]
    assert folded(1, *rig.of(1)).text == "hey"


def test_a_delivery_that_fails_after_the_abort_is_not_named_for_ever(rig: Rig) -> None:
    rig.assign(1, "a long one")
    rig.run()
    rig.log.fail_deliveries(REPLIES, 2)
    job = next(iter(rig.replica._jobs.values()))
    rig.run()
    rig.tell(AbortReply(reply_id(1), 1, ONE))
    rig.run()
    rig.replica.supervisor_beats += NAMED_BEATS
    rig.run()
    assert rig.replica.load.dropped == ()
    rig.replica._write(job.sequence.reply, r.Preempted(1, ONE), job)
    rig.run()
    assert rig.replica.load.dropped == (AttemptDropped(reply_id(1), 1),)
    rig.replica.supervisor_beats += GIVEN_UP_BEATS
    rig.run()
    assert rig.replica.load.dropped == ()
