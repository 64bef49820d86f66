"""The whole pipeline in one thread on the in-memory log: a message goes in, and all that follows from it is there.

Every stage is stepped in turn, half a second of log time a round, with one replica that says the last message again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from engine.beats import Beats
from engine.engine import Engine
from engine.errors import Replaced
from engine.lanes import Lanes
from engine.replica import Identity, Outbox, Replica
from engine.scheduler import Limits
from engine.scripted import ScriptedRunner
from engine.succession import Watch
from schemas.events import AbortReply, ConversationDeleted, ConversationRenamed, MessagePosted, ReplicaBeat
from schemas.ids import Incarnation, ReplyId
from schemas.prefix import BLOCK_TOKENS
from schemas.reply import Reply, State
from schemas.reply_records import AttemptOpened, Failed, Redirected, Rejected, Stopped, Tokens
from schemas.tokenizer import ChatTokenizer
from streams.admission import Model
from streams.history import History
from streams.intake import Intake
from streams.router import Router
from streams.runtime.effects import Effects
from streams.runtime.requests import Requests
from streams.runtime.runner import Runner
from streams.settlement import Settlement
from streams.stage import Message, Stage
from streams.supervisor import Supervisor
from tests.tiny_tokenizer import write_tokenizer
from tests.unit.streams.cells import CODEC, Cell, Crash
from tests.unit.streams.staged import SIZES, posted, reply_id
from topics.catalog import DEAD_LETTERS, TURNS, USAGE, generate_topic
from topics.schemas import Decoder
from topics.store.contract import SavedAt
from topics.store.progress import Progress
from topics.store.sqlite import SqliteStore

TEXT = "say it: né"
TOKENS = len(TEXT.encode())
EVERY = 13


class Pipeline(Cell):
    """`replicas` by slot; one that is taken out of it is dead: it beats no more, and what it was doing is left.

    A process that crashes is started anew at once.
    """

    def __init__(self, tokenizer: ChatTokenizer, store: SqliteStore) -> None:
        super().__init__(SIZES)
        self.tokenizer, self.store = tokenizer, store
        self.replicas: dict[int, tuple[Replica, Beats]] = {}
        self.starts = count(1)
        self._effects = Effects(
            Requests(self.log),
            store,
            Progress(self.log, store),
            Decoder(self.log, CODEC),
            self.routes,
            tokenizer.context,
            lambda: self.now_ms,
        )
        self._stages: dict[str, Callable[[], Stage]] = {
            "intake": lambda: Intake({tokenizer.name: Model(tokenizer, "main")}, self.routes),
            "router": lambda: Router("main", 100, self.routes),
            "supervisor": lambda: Supervisor(Incarnation(f"supervisor-{next(self.starts)}"), self.routes),
            "settlement": lambda: Settlement(self.routes),
            "history": lambda: History(self.store.identity()),
        }
        self._runners = {name: self._runner(name) for name in self._stages}

    def _runner(self, name: str) -> Runner:
        return self.runner(self._stages[name](), perform=self._effects.perform, project=self._save)

    def _save(self, messages: Sequence[Message]) -> None:
        self.store.save(SavedAt(message.offset, message.event) for message in messages)

    def start(self, slot: int, incarnation: str, capacity: int = 2) -> None:
        def outbox() -> Outbox:
            return Outbox(self.log.producer(), self.encoder(), self.routes)

        identity = Identity("main", slot, Incarnation(incarnation))
        lanes = Lanes(self.log, Decoder(self.log, CODEC), "main", slot)
        engine = Engine(ScriptedRunner(self.tokenizer), Limits(max_running=capacity))
        replica = Replica(identity, engine, self.tokenizer, lanes, outbox())
        replica.note()
        watch = Watch(self.log, Decoder(self.log, CODEC), identity)
        self.replicas[slot] = replica, Beats(replica, watch, outbox(), print)

    def uses(self, name: str, stage: Callable[[], Stage]) -> None:
        """From now on that is the stage of that name."""
        self._stages[name] = stage
        self.start_again(name)

    def start_again(self, name: str) -> None:
        self._runners[name] = self._runner(name)

    def post(self, message: MessagePosted) -> ReplyId:
        self.write(self.routes.message(message.user, message))
        return message.reply

    def round(self) -> None:
        self.now_ms += 500
        for name in self._stages:
            try:
                self.step(self._runners[name])
            except Crash:
                self._runners[name] = self._runner(name)
        for slot, (replica, beats) in list(self.replicas.items()):
            try:
                replica.step()
                beats.beat(replica.load)
                beats.look()
            except (Crash, Replaced):
                self.start(slot, f"incarnation-{next(self.starts)}")

    def run(self, *replies: ReplyId, tokens: int | None = None) -> Reply:
        """Until all have ended, or the first has so many tokens."""
        for _ in range(100):
            self.round()
            seen = [self.replies().get(reply) or Reply(reply) for reply in replies]
            if (tokens is not None and len(seen[0].ids) >= tokens) or all(reply.state.ended for reply in seen):
                return seen[0]
        raise AssertionError(f"{seen} after {self.now_ms} ms")

    def settle(self, rounds: int = 4) -> None:
        for _ in range(rounds):
            self.round()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return ChatTokenizer.load(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture
def pipeline(tokenizer: ChatTokenizer, tmp_path: Path) -> Iterator[Pipeline]:
    store = SqliteStore(tmp_path / "store.sqlite")
    yield Pipeline(tokenizer, store)
    store.close()


def said(pipeline: Pipeline, conversation: str = "c") -> list[tuple[str, str, str]]:
    """The conversation as the store has it."""
    message = posted(0, conversation=conversation)
    turns = pipeline.store.history(message.user, message.conversation, 10_000).turns
    return [(turn.role, turn.text, turn.status) for turn in turns]


def test_a_message_becomes_tokens_usage_turns_and_a_stored_conversation(pipeline: Pipeline) -> None:
    pipeline.start(0, "one")
    reply = pipeline.run(pipeline.post(posted(1, TEXT)))
    pipeline.settle()
    assert (reply.state, reply.text, len(reply.ids)) == (State.FINISHED, TEXT, TOKENS)
    [usage] = pipeline.events(USAGE)
    assert (usage.reply, usage.completion_tokens, usage.attempts) == (reply.id, TOKENS, 1)
    assert said(pipeline) == [("user", TEXT, "complete"), ("assistant", TEXT, "complete")]
    assert (len(pipeline.events(TURNS)), pipeline.events(DEAD_LETTERS)) == (2, [])


def test_the_next_message_is_asked_with_the_exact_tokens_of_the_first_reply(pipeline: Pipeline) -> None:
    pipeline.start(0, "one")
    first = pipeline.run(pipeline.post(posted(1, "one")))
    pipeline.settle()
    second = pipeline.run(pipeline.post(posted(2, "two")))
    assert first.accepted and second.accepted
    added = pipeline.tokenizer.turn_length("user", 3) + pipeline.tokenizer.turn_length("assistant", len(first.ids))
    assert second.accepted.prompt_tokens == first.accepted.prompt_tokens + added
    assert second.text == "two"


def test_six_posts_of_one_key_are_one_reply(pipeline: Pipeline) -> None:
    pipeline.start(0, "one")
    replies = [pipeline.post(posted(n, TEXT, client_key="k")) for n in range(6)]
    pipeline.run(*replies)
    pipeline.settle()
    told = pipeline.of_replies()
    assert [told[reply] for reply in replies[1:]] == [[Redirected(replies[0])]] * 5
    assert [usage.reply for usage in pipeline.events(USAGE)] == replies[:1]


@pytest.mark.parametrize("begun", range(TOKENS))
@pytest.mark.parametrize("how", ["replaced", "silent"])
def test_a_reply_whose_replica_dies_goes_on_elsewhere_word_for_word(pipeline: Pipeline, begun: int, how: str) -> None:
    pipeline.start(0, "one")
    reply = pipeline.post(posted(1, TEXT))
    broken = pipeline.run(reply, tokens=begun)
    del pipeline.replicas[0]
    pipeline.start(0 if how == "replaced" else 1, "two")
    whole = pipeline.run(reply)
    pipeline.settle()
    assert (whole.state, whole.text, whole.texts[: len(broken.texts)]) == (State.FINISHED, TEXT, broken.texts)
    assert [usage.completion_tokens for usage in pipeline.events(USAGE)] == [TOKENS]
    assert said(pipeline)[1] == ("assistant", TEXT, "complete")


def test_a_death_costs_one_attempt_and_computes_no_token_twice(pipeline: Pipeline) -> None:
    pipeline.start(0, "one")
    reply = pipeline.post(posted(1, TEXT))
    pipeline.run(reply, tokens=4)
    pipeline.start(0, "two")
    pipeline.run(reply)
    pipeline.settle()
    records = pipeline.of_replies()[reply]
    assert [record for record in records if isinstance(record, AttemptOpened)] == [AttemptOpened(2)]
    assert sum(len(record.texts) for record in records if isinstance(record, Tokens)) == TOKENS
    assert [usage.attempts for usage in pipeline.events(USAGE)] == [2]
    assert [request.attempt for request in pipeline.events(generate_topic("main", "resume"))] == [2]


def test_an_abort_that_nobody_had_reason_for_costs_an_attempt_and_no_word(pipeline: Pipeline) -> None:
    pipeline.start(0, "one")
    reply = pipeline.post(posted(1, TEXT))
    pipeline.run(reply, tokens=4)
    pipeline.write(pipeline.routes.command("main", 0, AbortReply(reply, 1, Incarnation("one"))))
    whole = pipeline.run(reply)
    pipeline.settle()
    assert (whole.state, whole.text, whole.attempt) == (State.FINISHED, TEXT, 2)
    assert [usage.completion_tokens for usage in pipeline.events(USAGE)] == [TOKENS]


def test_a_heartbeat_in_its_name_ends_a_replica_that_then_serves_anew(pipeline: Pipeline) -> None:
    pipeline.start(0, "one")
    reply = pipeline.post(posted(1, TEXT))
    pipeline.run(reply, tokens=4)
    forged = ReplicaBeat("main", 0, Incarnation("nobody"), "ready", 9, 0, 0, 9, (), 0, 0.0, "f")
    pipeline.write(pipeline.routes.replica_beat("main/0", forged))
    whole = pipeline.run(reply)
    assert (whole.state, whole.text, whole.attempt) == (State.FINISHED, TEXT, 2)
    assert pipeline.replicas[0][0].identity.incarnation == whole.owner != "one"


def test_a_reply_that_nobody_can_take_fails_at_its_deadline(pipeline: Pipeline) -> None:
    reply = pipeline.post(posted(1, deadline_ms=5_000))
    ended = pipeline.run(reply)
    pipeline.start(0, "one")
    pipeline.settle(6)
    assert ended.end == Failed("deadline")
    assert pipeline.replicas[0][0].idle
    assert [(usage.state, usage.completion_tokens) for usage in pipeline.events(USAGE)] == [("failed", 0)]
    assert said(pipeline) == [("user", "hi", "complete"), ("assistant", "", "failed")]


def test_a_message_behind_an_open_reply_is_refused_in_time_or_answered_after_it(pipeline: Pipeline) -> None:
    pipeline.start(0, "one")
    first, second = pipeline.post(posted(1, TEXT)), pipeline.post(posted(2, "next"))
    pipeline.run(first, second)
    refused: Any = pipeline.replies()[second].end
    assert isinstance(refused, Rejected) and refused.reason == "conversation_busy"
    pipeline.settle()
    pipeline.run(pipeline.post(posted(3, "x")), third := pipeline.post(posted(4, "y")))
    assert pipeline.replies()[third].text == "y"


def test_a_conversation_deleted_in_the_middle_of_a_reply_is_gone_and_paid_for(pipeline: Pipeline) -> None:
    pipeline.start(0, "one")
    first = posted(1, TEXT)
    pipeline.run(pipeline.post(first), tokens=4)
    pipeline.write(pipeline.routes.message(first.user, ConversationDeleted(first.user, first.conversation)))
    stopped = pipeline.run(first.reply)
    pipeline.settle()
    assert (stopped.end, said(pipeline)) == (Stopped("user"), [])
    assert [(usage.state, usage.completion_tokens) for usage in pipeline.events(USAGE)] == [("stopped", stopped.last)]
    pipeline.run(pipeline.post(posted(2, "anew")))
    pipeline.settle()
    assert said(pipeline) == [("user", "anew", "complete"), ("assistant", "anew", "complete")]


def test_a_name_given_before_the_first_answer_stays(pipeline: Pipeline) -> None:
    pipeline.start(0, "one")
    message = posted(1, TEXT)
    renamed = ConversationRenamed(message.user, message.conversation, "To Rome")
    pipeline.write(pipeline.routes.message(message.user, message), pipeline.routes.message(message.user, renamed))
    pipeline.run(message.reply)
    pipeline.settle()
    [line] = pipeline.store.conversations(message.user, 10)
    assert (line.title, line.count) == ("To Rome", 2)


def test_a_store_that_was_lost_is_built_anew(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.start(0, "one")
    pipeline.run(pipeline.post(posted(1, TEXT)))
    pipeline.settle()
    before = said(pipeline)
    with closing(SqliteStore(tmp_path / "other.sqlite")) as pipeline.store:
        pipeline.start_again("history")
        pipeline.settle()
        assert said(pipeline) == before != []


def test_many_replies_share_two_replicas(pipeline: Pipeline) -> None:
    for slot, name in enumerate(("one", "two")):
        pipeline.start(slot, name)
    texts = {reply_id(n): f"text {n}" for n in range(12)}
    for n, text in enumerate(texts.values()):
        pipeline.post(posted(n, text, user=f"user-{n}"))
    pipeline.run(*texts)
    pipeline.settle()
    replies = pipeline.replies()
    assert {reply: replies[reply].text for reply in texts} == texts
    assert {replies[reply].owner for reply in texts} == {"one", "two"}
    assert sorted(usage.reply for usage in pipeline.events(USAGE)) == sorted(texts)


def test_the_next_turn_goes_to_the_replica_that_has_the_blocks_of_the_first(pipeline: Pipeline) -> None:
    for slot, name in enumerate(("one", "two")):
        pipeline.start(slot, name)
    pipeline.settle()
    busy = pipeline.post(posted(9, user="bob", account="other"))
    first = pipeline.run(pipeline.post(posted(1, "y" * 30)), busy)
    pipeline.settle()
    second = pipeline.run(pipeline.post(posted(2, "and then")))
    assert first.started and first.accepted and second.started
    assert (pipeline.replies()[busy].owner, first.owner, second.owner) == ("one", "two", "two")
    assert (first.started.cached_tokens, second.started.cached_tokens % BLOCK_TOKENS) == (0, 0)
    assert second.started.cached_tokens > first.accepted.prompt_tokens


def lived(tokenizer: ChatTokenizer, store: Path, crash_at: int = -1) -> Pipeline:
    """Two conversations and a repeat, from the posts to the stored turns."""
    pipeline = Pipeline(tokenizer, SqliteStore(store))
    pipeline.log.crash_at = crash_at
    pipeline.start(0, "one")
    asked = posted(1, TEXT, client_key="k"), posted(2, TEXT, client_key="k"), posted(3, "two", user="bob")
    pipeline.run(*(pipeline.post(message) for message in asked))
    pipeline.settle(8)
    pipeline.store.close()
    return pipeline


def test_one_process_that_dies_anywhere_changes_no_word_and_no_bill(tokenizer: ChatTokenizer, tmp_path: Path) -> None:
    undisturbed = lived(tokenizer, tmp_path / "store")
    paid = [(usage.reply, usage.completion_tokens) for usage in undisturbed.events(USAGE)]
    for crash_at in range(0, len(undisturbed.log.calls), EVERY):
        pipeline = lived(tokenizer, tmp_path / f"store-{crash_at}", crash_at)
        where = f"crash in call {crash_at}, {pipeline.log.calls[crash_at]}"
        replies = pipeline.replies()
        assert [replies[reply_id(n)].text for n in (1, 3)] == [TEXT, "two"], where
        assert pipeline.of_replies()[reply_id(2)][0] == Redirected(reply_id(1)), where
        assert sorted((usage.reply, usage.completion_tokens) for usage in pipeline.events(USAGE)) == sorted(paid), where
