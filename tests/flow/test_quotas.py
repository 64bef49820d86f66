"""Quotas through the whole pipeline on the in-memory log: whoever dies, the ledger is the sum of the usage records."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.events import ChatMessage, MessagePosted
from schemas.ids import ReplyId, UserId
from schemas.quota_records import Balance, Limit, Plan, PlansLoaded, UsageAsked
from schemas.reply_records import Accepted, UsageTold
from schemas.tokenizer import ChatTokenizer
from tests.flow.test_pipeline import Pipeline
from tests.tiny_tokenizer import write_tokenizer
from tests.unit.streams.staged import posted, reply_id
from topics.catalog import USAGE
from topics.store.sqlite import SqliteStore

LIMIT, EVERY = 200, 31
PLAN = Plan("paid", "paid", (Limit("*", "tokens", LIMIT, "1h"), Limit("*", "replies", 4)), default_max_tokens=40)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return ChatTokenizer.load(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def whole(n: int) -> MessagePosted:
    return posted(n, "", conversation=f"c{n}", client_key="", messages=(ChatMessage("user", "say it"),))


def lived(tokenizer: ChatTokenizer, store: Path, crash_at: int = -1) -> Pipeline:
    """Eight requests at once and, when they have ended, one more and the question what is left."""
    pipeline = Pipeline(tokenizer, SqliteStore(store))
    pipeline.log.crash_at = crash_at
    pipeline.start(0, "one")
    pipeline.write(pipeline.routes.message(UserId(""), PlansLoaded((PLAN,))))
    pipeline.run(*(pipeline.post(whole(n)) for n in range(8)))
    pipeline.settle(8)
    pipeline.run(pipeline.post(whole(8)))
    pipeline.settle(8)
    asked = UsageAsked(UserId("alice"), reply_id(99), "paid")
    pipeline.write(pipeline.routes.message(asked.user, asked))
    pipeline.run(asked.reply)
    pipeline.store.close()
    return pipeline


def told(pipeline: Pipeline) -> tuple[Balance, ...]:
    answer = pipeline.of_replies()[reply_id(99)][0]
    assert isinstance(answer, UsageTold)
    return answer.balances


def accepted(pipeline: Pipeline) -> set[ReplyId]:
    return {reply for reply, records in pipeline.of_replies().items() if isinstance(records[0], Accepted)}


def test_what_is_reserved_at_once_fits_and_what_ends_makes_room(tokenizer: ChatTokenizer, tmp_path: Path) -> None:
    pipeline = lived(tokenizer, tmp_path / "store")
    tokens, replies = told(pipeline)
    usage = pipeline.events(USAGE)
    assert {reply_id(0), reply_id(8)} < accepted(pipeline) != {reply_id(n) for n in range(9)}
    assert tokens.used == sum(u.prompt_tokens + u.completion_tokens for u in usage) <= LIMIT
    assert (tokens.reserved, replies.reserved) == (0, 0)


def test_one_process_that_dies_anywhere_changes_no_balance(tokenizer: ChatTokenizer, tmp_path: Path) -> None:
    undisturbed = lived(tokenizer, tmp_path / "store")
    amounts = [(balance.used, balance.reserved) for balance in told(undisturbed)]
    for crash_at in range(0, len(undisturbed.log.calls), EVERY):
        pipeline = lived(tokenizer, tmp_path / f"store-{crash_at}", crash_at)
        where = f"crash in call {crash_at}, {pipeline.log.calls[crash_at]}"
        assert [(balance.used, balance.reserved) for balance in told(pipeline)] == amounts, where
        assert accepted(pipeline) == accepted(undisturbed), where
        assert {usage.reply for usage in pipeline.events(USAGE)} == accepted(undisturbed), where
