"""The real model behind a real stack: it answers, remembers what was said before, and serves many users at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from infra.local.stack import MODEL
from schemas.ids import ReplyId
from schemas.reply import Reply, State
from tests.services.client import ENDS, Client, data_of, event_of, id_of, ids_of, text_of
from tests.services.records import Records, balanced
from tests.services.running import until
from tests.services.test_eyes import total
from tests.stack import Stack

GREEDY = {"temperature": 0, "max_tokens": 30}
MIXED, AT_ONCE = 64, 16
TEXTS = ("Hi!", "Count to ten.", "What is the capital of France?", "Tell me a story about a lighthouse.", "東京?")
PENALTIES: tuple[dict[str, float], ...] = (
    {},
    {"presence_penalty": 1.0},
    {"frequency_penalty": 0.5},
    {"repetition_penalty": 1.3},
)
Heard = tuple[ReplyId, list[bytes] | dict[str, Any]]


@pytest.fixture(scope="module")
def greta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with (
        Stack(tmp_path_factory.mktemp("model"), {"LANEWAY_REPLICA": "model"}, ("greta",)) as running,
        Client(running, "greta") as client,
    ):
        yield client


@pytest.fixture
def model_log(greta: Client) -> Iterator[Records]:
    with Records(greta.stack.kafka) as records:
        yield records


def test_the_model_knows_the_capital_of_france(greta: Client) -> None:
    frames = greta.follow(greta.say("france", "What is the capital of France?", **GREEDY))
    assert text_of(frames) == "The capital of France is Paris."
    assert (event_of(frames[-1]), data_of(frames[-1])["finish_reason"]) == ("finished", "stop")


def test_the_model_remembers_the_turn_before(greta: Client) -> None:
    greta.follow(greta.say("remembered", "What is the capital of France?", **GREEDY))
    frames = greta.follow(greta.say("remembered", "And of Germany?", edge=1, **GREEDY))
    assert text_of(frames) == "The capital of Germany is Berlin."
    alone = greta.follow(greta.say("unremembered", "And of Germany?", edge=1, **GREEDY))
    assert text_of(alone) != text_of(frames)


def test_the_next_turn_finds_the_one_before_in_the_cache_and_the_counter_says_so(
    greta: Client, model_log: Records
) -> None:
    counted = [total(greta.stack, "replica-0", "laneway_replica_cached_tokens_total")]
    replies = []
    for text in ("Name three fruits.", "And three colours?"):
        replies.append(greta.say("cached", text, **GREEDY))
        greta.follow(replies[-1])
        counted.append(total(greta.stack, "replica-0", "laneway_replica_cached_tokens_total"))
    first, second = (cached_tokens(model_log.replies()[reply]) for reply in replies)
    assert second > first and second >= 32
    assert counted == [counted[0], counted[0] + first, counted[0] + first + second]


def test_many_mixed_requests_all_end_as_the_log_says(greta: Client, model_log: Records) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        asked = [pool.submit((listened, stopped, resumed, completed)[n % 4], greta, n) for n in range(MIXED)]
        heard = [future.result() for future in asked]
    until(lambda: balanced(model_log))
    logged = model_log.replies()
    for reply, told in heard:
        if isinstance(told, list):
            assert_told_as_logged(logged[reply], told)
        else:
            assert told["choices"][0]["message"]["content"] == logged[reply].text
            assert told["usage"]["completion_tokens"] == len(logged[reply].ids) > 0
    states = Counter(logged[reply].state for reply, _ in heard)
    assert states.keys() == {State.STOPPED, State.FINISHED} and states[State.FINISHED] >= MIXED * 3 // 4


def cached_tokens(reply: Reply) -> int:
    assert reply.started is not None
    return reply.started.cached_tokens


def assert_told_as_logged(logged: Reply, frames: list[bytes]) -> None:
    """One end, at the end; every number once, in order; the log's text, and its count."""
    ended = [event_of(frame) for frame in frames if event_of(frame) in ENDS]
    assert ended == [event_of(frames[-1])] == [logged.state.value.lower()], logged.id
    assert ids_of(frames) == list(range(len(logged.ids) + 2)), logged.id
    assert text_of(frames) == logged.text
    if logged.state is State.FINISHED:
        assert data_of(frames[-1])["usage"]["completion_tokens"] == len(logged.ids)


def mixed(n: int) -> dict[str, Any]:
    """What the n-th request asks for."""
    asked = {"max_tokens": 4 + n % 21, "temperature": (0, 0.5, 1)[n % 3], "seed": n, **PENALTIES[n // 4 % 4]}
    return {**asked, "stop": [".", " the"]} if n % 5 == 0 else asked


def say(greta: Client, n: int) -> ReplyId:
    return greta.say(f"mixed-{n}", TEXTS[n % len(TEXTS)], edge=n // 4 % 2, **mixed(n))


def listened(greta: Client, n: int) -> Heard:
    reply = say(greta, n)
    return reply, greta.follow(reply, n // 4 % 2)


def stopped(greta: Client, n: int) -> Heard:
    """By its user at the other edge, after a few events if it lives as long."""
    reply, edge = say(greta, n), n // 4 % 2
    frames: list[bytes] = []
    with greta.stream(reply, edge) as stream:
        for frame in stream:
            frames.append(frame)
            if len(frames) == 3:
                greta.stop(reply, 1 - edge)
    return reply, frames


def resumed(greta: Client, n: int) -> Heard:
    """The stream is dropped after some events, and goes on at the other edge."""
    reply, edge = say(greta, n), n // 4 % 2
    cursor: int | None = None
    frames: list[bytes] = []
    with greta.stream(reply, edge) as stream:
        for frame in stream:
            frames.append(frame)
            cursor = cursor if (seen := id_of(frame)) is None else seen
            if cursor == 2 or event_of(frame) in ENDS:
                break
    if event_of(frames[-1]) in ENDS:
        return reply, frames
    return reply, greta.follow(reply, 1 - edge, cursor, into=frames)


def completed(greta: Client, n: int) -> Heard:
    body = {"model": MODEL, "messages": [{"role": "user", "content": TEXTS[n % len(TEXTS)]}], **mixed(n)}
    answer = greta.ask("POST", "/v1/chat/completions", n // 4 % 2, json=body)
    assert answer.status_code == 200, answer.text
    return ReplyId(answer.json()["id"]), answer.json()
