"""The answer to one message."""

from dataclasses import replace
from typing import Any

import pytest

from schemas.events import ChatMessage, ClientKey, MessagePosted, Sampling, unpack_ids
from schemas.kept_records import ConversationKept, ParkedMessage
from schemas.reply_records import Accepted, Redirected, Rejected
from schemas.tokenizer import ChatTokenizer
from streams.admission import BUSY_PATIENCE_MS, Answer, Model, admit, evolve
from tests.unit.streams.staged import DEADLINE_MS, T0, posted, reply_id, turn


def kept(**fields: Any) -> ConversationKept:
    asked = posted(0)
    return replace(ConversationKept(asked.user, asked.conversation, T0, False, (), (), None, ()), **fields)


def answer(
    tokenizer: ChatTokenizer, message: MessagePosted, conversation: ConversationKept | None = None, waited: int = 0
) -> Answer | None:
    models = {"tiny": Model(tokenizer, "main")}
    return admit(models, conversation or kept(), ParkedMessage(message, T0), T0 + waited)


def test_an_accepted_message_brings_its_request_and_the_users_turn(tokenizer: ChatTokenizer) -> None:
    given = answer(
        tokenizer, posted(1, "hello"), kept(turns=(turn("assistant", (5,), message="a-0"),), leaf="a-0", branch="a-0")
    )
    assert given and given.request and given.turn and isinstance(given.record, Accepted)
    assert given.record.prompt_tokens == len(unpack_ids(given.request.prompt))
    assert given.record.max_tokens == given.request.sampling.max_tokens
    assert given.record.deadline_ms == given.request.deadline_ms == T0 + DEADLINE_MS
    assert given.turn.turn.message == given.record.user_message
    assert (given.turn.turn.parent, unpack_ids(given.turn.turn.token_ids)) == ("a-0", tokenizer.encode("hello"))


@pytest.mark.parametrize(
    ("plan", "tier"), [("business", "paid"), ("paid", "paid"), ("free", "free"), ("not heard of", "free")]
)
def test_the_plan_chooses_the_tier(tokenizer: ChatTokenizer, plan: str, tier: str) -> None:
    given = answer(tokenizer, posted(1, plan=plan))
    assert given and given.request and isinstance(given.record, Accepted)
    assert (given.record.tier, given.request.tier, given.record.plan) == (tier, tier, plan)


@pytest.mark.parametrize("open_reply", [None, reply_id(1), reply_id(9)])
def test_a_used_key_leads_to_its_reply_whatever_goes_on(tokenizer: ChatTokenizer, open_reply: Any) -> None:
    conversation = kept(keys=(ClientKey("k", "body", reply_id(1)),), open_reply=open_reply)
    same = answer(tokenizer, posted(2, client_key="k", body_hash="body", model="gone"), conversation)
    other = answer(tokenizer, posted(2, client_key="k", body_hash="other"), conversation)
    assert same and same.record == Redirected(reply_id(1))
    assert other and isinstance(other.record, Rejected) and other.record.reason == "conflict"


def test_a_model_that_is_not_served_is_refused_by_name(tokenizer: ChatTokenizer) -> None:
    given = answer(tokenizer, posted(1, model="huge"), kept(open_reply=reply_id(0)))
    assert given and isinstance(given.record, Rejected)
    assert given.record.reason == "model_not_found"
    assert "'huge'" in given.record.detail and "tiny" in given.record.detail


def test_a_message_waits_for_the_reply_before_it_for_a_while(tokenizer: ChatTokenizer) -> None:
    busy = kept(open_reply=reply_id(0))
    assert answer(tokenizer, posted(1), busy, BUSY_PATIENCE_MS - 1) is None
    refused = answer(tokenizer, posted(1), busy, BUSY_PATIENCE_MS)
    assert refused and isinstance(refused.record, Rejected)
    assert (refused.record.reason, refused.record.reply) == ("conversation_busy", reply_id(0))
    assert refused.record.retry_after_ms


def test_a_message_longer_than_the_context_is_refused_with_the_numbers(tokenizer: ChatTokenizer) -> None:
    given = answer(tokenizer, posted(1, "x" * 600))
    assert given and isinstance(given.record, Rejected) and given.turn is None
    assert given.record.reason == "context_length_exceeded"
    assert "512" in given.record.detail


def test_only_an_accepted_message_changes_the_conversation(tokenizer: ChatTokenizer) -> None:
    before = kept(keys=(ClientKey("old", "b", reply_id(0)),))
    accepted, refused = answer(tokenizer, posted(1)), answer(tokenizer, posted(2, model="huge"))
    assert accepted and accepted.turn and refused
    assert evolve(before, refused) == before
    after = evolve(before, accepted)
    assert (after.open_reply, after.turns) == (reply_id(1), (accepted.turn.turn,))
    assert after.leaf == after.branch == accepted.turn.turn.message
    assert after.keys == (*before.keys, ClientKey("key-1", "hi", reply_id(1)))


def test_a_whole_prompt_waits_for_nobody_and_leaves_no_turn(tokenizer: ChatTokenizer) -> None:
    message = posted(1, "", messages=(ChatMessage("user", "hello"),), on_disconnect="cancel")
    given = answer(tokenizer, message, kept(open_reply=reply_id(0)))
    assert given and given.request and isinstance(given.record, Accepted)
    assert (given.turn, given.record.stored, given.record.on_disconnect) == (None, False, "cancel")
    assert evolve(kept(), given).keys == (ClientKey("key-1", "", reply_id(1)),)
    assert evolve(kept(), given).turns == ()


def test_a_whole_prompt_that_does_not_fit_is_refused_with_the_numbers(tokenizer: ChatTokenizer) -> None:
    message = posted(1, "", messages=(ChatMessage("user", "hello"),), sampling=Sampling(max_tokens=511))
    given = answer(tokenizer, message)
    assert given and isinstance(given.record, Rejected)
    assert given.record.reason == "context_length_exceeded"
    assert "max_tokens is 511" in given.record.detail and "512" in given.record.detail
