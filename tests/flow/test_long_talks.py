"""Long conversations: what the engine's prefix cache finds of them, and what ten thousand turns cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path

import pytest

from schemas.events import GenerateRequested, MessagePosted, Sampling, Turn, TurnSaved, pack_ids, unpack_ids
from schemas.ids import MessageId, ReplyId, UserId
from schemas.reply import Reply
from schemas.reply_records import Accepted
from schemas.tokenizer import ChatTokenizer
from streams.active import MOST_HELD_BYTES
from streams.admission import MOST_KEYS, Model
from streams.intake import Intake
from streams.runtime.effects import Effects
from streams.runtime.requests import Requests
from streams.stage import HistoryWanted
from tests.flow.test_pipeline import Pipeline
from tests.tiny_tokenizer import write_tokenizer
from tests.unit.streams.cells import CODEC
from tests.unit.streams.intakes import Intakes
from tests.unit.streams.staged import answers, events, posted
from topics.catalog import generate_topic
from topics.schemas import Decoder
from topics.store.contract import SavedAt
from topics.store.progress import Progress
from topics.store.sqlite import SqliteStore

CONTEXT = 2048
TALK = 30
ANSWER = 4
TURNS = 10_000


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    folder = write_tokenizer(tmp_path_factory.mktemp("long"))
    settings = json.loads((folder / "laneway.json").read_text())
    (folder / "laneway.json").write_text(json.dumps({**settings, "context": CONTEXT}))
    return ChatTokenizer.load(folder)


@pytest.fixture
def pipeline(tokenizer: ChatTokenizer, tmp_path: Path) -> Iterator[Pipeline]:
    store = SqliteStore(tmp_path / "store.sqlite")
    yield Pipeline(tokenizer, store)
    store.close()


def shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many tokens both begin with."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def question(n: int) -> MessagePosted:
    return posted(n, f"{n}: " + "so it goes on, " * (8 + n % 5), sampling=Sampling(max_tokens=ANSWER, seed=7))


def talk(pipeline: Pipeline) -> list[tuple[tuple[int, ...], Reply]]:
    """Thirty questions, each answered with its first tokens, in one conversation."""
    replies = []
    for n in range(TALK):
        replies.append(pipeline.run(pipeline.post(question(n))))
        pipeline.settle()
        if n == TALK * 2 // 3:
            pipeline.start_again("intake")
    requests = chain.from_iterable(pipeline.events(generate_topic("main", tier)) for tier in ("paid", "free"))
    prompts = {r.reply: unpack_ids(r.prompt) for r in requests if isinstance(r, GenerateRequested)}
    return [(prompts[reply.id], reply) for reply in replies]


@pytest.mark.parametrize("room", [MOST_HELD_BYTES, 0], ids=["turns at hand", "turns from the store"])
def test_of_what_prompts_share_nearly_all_is_found_cached(pipeline: Pipeline, room: int) -> None:
    models = {"tiny": Model(pipeline.tokenizer, "main")}
    pipeline.uses("intake", lambda: Intake(models, pipeline.routes, room))
    pipeline.start(0, "one")
    said = talk(pipeline)
    assert sum(len(question(n).text) + ANSWER for n in range(TALK)) > 2 * CONTEXT, "it passes the budget twice"
    expected = found = 0
    for (before, answer), (prompt, reply) in pairwise(said):
        assert reply.started
        expected += shared((*before, *answer.ids), prompt)
        found += reply.started.cached_tokens
    assert found >= 0.95 * expected
    assert expected > 0.75 * sum(len(prompt) for prompt, _ in said), "most of each prompt was in the one before"
    assert max(len(prompt) for prompt, _ in said) <= CONTEXT - ANSWER


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory, tokenizer: ChatTokenizer) -> Iterator[SqliteStore]:
    """Alice's conversation `c` has ten thousand turns; Bob's of that name has one."""
    store = SqliteStore(tmp_path_factory.mktemp("huge") / "store.sqlite")
    store.save(SavedAt(n, saved(tokenizer, n)) for n in range(TURNS))
    store.save([SavedAt(TURNS, saved(tokenizer, 0, "bob"))])
    yield store
    store.close()


def saved(tokenizer: ChatTokenizer, n: int, user: str = "alice") -> TurnSaved:
    ids, asks = pack_ids(tokenizer.encode(f"turn {n}")), n % 2 == 0
    parent = MessageId(f"m-{n - 1}") if n else None
    role = "user" if asks else "assistant"
    turn = Turn(MessageId(f"m-{n}"), parent, role, f"turn {n}", ids, tokenizer.fingerprint, "complete")
    key = f"key-{n}" if asks else None
    message = posted(n, user=user)
    return TurnSaved(
        UserId(user),
        message.conversation,
        turn,
        ReplyId(f"r-{n // 2}"),
        "tiny",
        n // 2,
        key,
        "hash",
        posted_ms=n // 2 + 1,
    )


def effects(pipeline: Pipeline, store: SqliteStore) -> Effects:
    decoder, context = Decoder(pipeline.log, CODEC), pipeline.tokenizer.context
    return Effects(
        Requests(pipeline.log), store, Progress(pipeline.log, store), decoder, pipeline.routes, context, lambda: 0
    )


def test_after_ten_thousand_turns_a_prompt_is_within_its_budget(pipeline: Pipeline, huge: SqliteStore) -> None:
    message = posted(TURNS, "and now?")
    intake = Intakes(pipeline.tokenizer)
    [wanted] = intake.take(message).wanted
    assert isinstance(wanted, HistoryWanted)
    loaded = effects(pipeline, huge).perform(wanted).event
    assert len(loaded.keys) == MOST_KEYS and sum(len(turn.token_ids) for turn in loaded.turns) <= 4 * CONTEXT
    decision = intake.take(loaded)
    [accepted] = answers(decision).values()
    assert isinstance(accepted, Accepted) and accepted.prompt_tokens + accepted.max_tokens <= CONTEXT
    [request] = events(decision.then, GenerateRequested)
    assert len(unpack_ids(request.prompt)) > CONTEXT // 4


def test_the_pages_of_ten_thousand_turns_join_without_a_gap(huge: SqliteStore) -> None:
    alice, conversation = UserId("alice"), posted(0).conversation
    leaf: MessageId | None = None
    read: list[str] = []
    while True:
        page = huge.path(alice, conversation, 200, leaf)
        read[:0] = [one.turn.message for one in page]
        leaf = page[0].turn.parent
        if leaf is None:
            break
    assert read == [f"m-{n}" for n in range(TURNS)]
    assert [one.turn.message for one in huge.path(UserId("bob"), conversation, 200)] == ["m-0"]
    assert huge.tip(alice, conversation, MessageId("m-0")) == f"m-{TURNS - 1}"


def test_a_message_of_another_user_names_no_parent_of_ones_own(pipeline: Pipeline, huge: SqliteStore) -> None:
    stranger: MessagePosted = posted(TURNS, "mine?", user="bob", parent=MessageId("m-9"))
    intake = Intakes(pipeline.tokenizer)
    [wanted] = intake.take(stranger).wanted
    assert isinstance(wanted, HistoryWanted)
    told = intake.told(effects(pipeline, huge).perform(wanted).event)
    assert [record.reason for record in told.values()] == ["parent_not_found"]
