"""A reply that loses its replica, wherever it is cut, reads in the log as the one that never broke: each id and text,
each log probability, the end, and never a token more than was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.model_runner import ModelRunner
from engine.ops.contract import Ops
from schemas import reply_records as r
from schemas.events import Sampling, pack_ids
from schemas.ids import Incarnation
from schemas.reply import Reply, State
from schemas.tokenizer import ChatTokenizer
from tests.unit.engine.replica_rig import ONE, ORIGIN, Rig, folded

TEXT = "Say a few words"
MOST = 12
SAMPLINGS = {
    "greedy": Sampling(MOST, temperature=0.0, ignore_eos=True),
    "sampled": Sampling(MOST, seed=7, ignore_eos=True),
    "until its end": Sampling(MOST, seed=11, min_tokens=3),
    "penalised": Sampling(
        MOST, seed=3, presence_penalty=0.9, frequency_penalty=0.7, repetition_penalty=1.3, ignore_eos=True
    ),
    "with log probabilities": Sampling(MOST, seed=5, top_logprobs=2, ignore_eos=True),
}
SCRIPTED = "né 👩‍🚀 STO STONy"
STOP = Sampling(60, stop=("STOP", "TON"), top_logprobs=1)


@pytest.fixture(scope="module")
def runner(tiny: Path, ops: Ops, dtype: torch.dtype) -> ModelRunner:
    return ModelRunner.load(tiny, 300, frozenset({2}), dtype, ops)


class Dying:
    """A reply, number by number: each attempt is a fresh replica's, and is cut."""

    def __init__(self, tokenizer: ChatTokenizer, runner: ModelRunner | None, text: str, sampling: Sampling) -> None:
        self._tokenizer, self._runner, self._text, self._sampling = tokenizer, runner, text, sampling
        self.log: list[Any] = []

    @property
    def reply(self) -> Reply:
        return folded(1, *self.log)

    def attempt(self, *, dies_after: int | None = None, last_words: tuple[Any, ...] = ()) -> Reply:
        """The next attempt, to its end, or until the log has so many tokens of the reply."""
        before = self.reply
        rig = Rig(self._tokenizer, runner=self._runner)
        accepted = pack_ids(before.ids)
        rig.assign(1, self._text, attempt=before.attempt, accepted=accepted, sampling=self._sampling)
        rig.run_out()
        records = rig.of(1)
        if dies_after is not None:
            records = [*_cut(records, dies_after), *last_words, r.AttemptOpened(before.attempt + 1)]
        self.log += records
        return self.reply


def _cut(records: list[Any], most: int) -> Iterator[Any]:
    for record in records:
        if isinstance(record, r.Tokens):
            kept = max(0, most - record.first + 1)
            if kept:
                yield replace(
                    record, ids=record.ids[: 4 * kept], texts=record.texts[:kept], logprobs=record.logprobs[:kept]
                )
        elif not isinstance(record, r.Finished):
            yield record


def said(reply: Reply) -> tuple[Any, ...]:
    return reply.ids, reply.texts, reply.logprobs, reply.state, reply.reason, reply.gap


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_cut_at_every_token_of_the_model(
    tiny_tokenizer: ChatTokenizer, runner: ModelRunner, sampling: Sampling
) -> None:
    unbroken, dying = (Dying(tiny_tokenizer, runner, TEXT, sampling) for _ in range(2))
    whole = unbroken.attempt()
    assert whole.state is State.FINISHED and len(whole.ids) <= MOST
    for cut in range(len(whole.ids)):
        dying.log = [*_cut(unbroken.log, cut), r.AttemptOpened(2)]
        assert said(dying.attempt()) == said(whole), f"cut after {cut}"


@pytest.mark.parametrize("sampling", [SAMPLINGS["penalised"], SAMPLINGS["with log probabilities"]], ids=["p", "l"])
@pytest.mark.parametrize("cuts", [(0, 0), (3, 9), (MOST - 2, MOST - 1)], ids=str)
def test_the_next_replica_dies_too(
    tiny_tokenizer: ChatTokenizer, runner: ModelRunner, sampling: Sampling, cuts: tuple[int, ...]
) -> None:
    whole, dying = (Dying(tiny_tokenizer, runner, TEXT, sampling) for _ in range(2))
    for cut in cuts:
        dying.attempt(dies_after=cut)
    assert said(dying.attempt()) == said(whole.attempt())
    assert dying.reply.attempt == len(cuts) + 1


def test_while_it_is_preempted(tiny_tokenizer: ChatTokenizer, runner: ModelRunner) -> None:
    whole, dying = (Dying(tiny_tokenizer, runner, TEXT, SAMPLINGS["sampled"]) for _ in range(2))
    preempted = dying.attempt(dies_after=6, last_words=(r.Preempted(1, ONE),))
    assert (preempted.state, len(preempted.ids)) == (State.RESUMING, 6)
    assert said(dying.attempt()) == said(whole.attempt())


def test_before_it_started(tiny_tokenizer: ChatTokenizer, runner: ModelRunner) -> None:
    whole, dying = (Dying(tiny_tokenizer, runner, TEXT, SAMPLINGS["sampled"]) for _ in range(2))
    dying.log = [r.Dispatched(1, "main/1", Incarnation("dead"), ORIGIN), r.AttemptOpened(2)]
    assert said(dying.attempt()) == said(whole.attempt())


def test_inside_a_character_and_inside_what_may_become_a_stop(tiny_tokenizer: ChatTokenizer) -> None:
    """An astronaut is eleven bytes, each a token here; STO is held back each time, and ends it in the end."""
    whole = Dying(tiny_tokenizer, None, SCRIPTED, STOP).attempt()
    assert (whole.text, whole.reason) == ("né 👩‍🚀 STO S", "stop")
    assert "" in whole.texts
    for cut in range(len(whole.ids)):
        for second in range(cut, len(whole.ids), 5):
            dying = Dying(tiny_tokenizer, None, SCRIPTED, STOP)
            dying.attempt(dies_after=cut)
            dying.attempt(dies_after=second)
            assert said(dying.attempt()) == said(whole), (cut, second)
