"""OpenAI's API on a whole stack, by the clients that people have: the official one, httpx-sse, curl; at both edges."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx_sse
import jinja2
import openai
import orjson
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from tokenizers import Tokenizer

from engine.gguf_file import GgufFile
from schemas.events import unpack_ids
from schemas.ids import ReplyId
from schemas.reply import Reply, State
from tests.services.client import Client
from tests.services.conftest import BACKLOG
from tests.services.records import Records
from tests.services.running import PATIENCE_S, REPLICA, MendedStack
from tests.services.test_ends import ROOM

PATH = "/v1/chat/completions"
LONG = "again " * 200
MODEL = "smollm2-135m-instruct"
EDGES = (0, 1)


class Stock:
    """The official client at each edge, which tries nothing twice."""

    def __init__(self, stack: MendedStack, key: str) -> None:
        self._stack, self._key = stack, key

    def at(self, edge: int) -> openai.OpenAI:
        url = f"{self._stack.urls[edge]}/v1"
        return openai.OpenAI(base_url=url, api_key=self._key, max_retries=0, timeout=PATIENCE_S)

    def ask(self, text: str, edge: int = 0, **fields: Any) -> ChatCompletion:
        with self.at(edge) as client:
            done: ChatCompletion = client.chat.completions.create(model=MODEL, messages=said(text), **fields)
            return done

    def hear(self, text: str, edge: int = 0, **fields: Any) -> Iterator[ChatCompletionChunk]:
        with self.at(edge) as client:
            yield from client.chat.completions.create(model=MODEL, messages=said(text), stream=True, **fields)


def said(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def text_in(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def body_of(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": said(text), **fields}


def ended(paced: MendedStack, log: Records, reply: str) -> Reply:
    """The reply as the log has it, once it has ended."""
    paced.until(lambda: log.replies()[ReplyId(reply)].state.ended)
    return log.replies()[ReplyId(reply)]


@pytest.fixture
def stock(paced: MendedStack, wendy: Client) -> Stock:
    return Stock(paced, paced.keys[wendy.user])


@pytest.fixture(scope="module")
def template(paced: MendedStack) -> jinja2.Template:
    """The chat template that came with the model."""
    return jinja2.Template(GgufFile(paced.folder / "models" / MODEL / "model.gguf").field("tokenizer.chat_template"))


@pytest.mark.parametrize("edge", EDGES)
def test_a_completion_is_what_the_log_holds_and_no_turn_is_stored(
    paced: MendedStack, stock: Stock, wendy: Client, paced_log: Records, edge: int
) -> None:
    done = stock.ask("say this again", edge)
    reply = paced_log.replies()[ReplyId(done.id)]
    assert done.choices[0].message.content == reply.text == "say this again"
    assert done.usage and reply.accepted and done.usage.completion_tokens == len(reply.ids)
    assert (reply.accepted.stored, reply.accepted.on_disconnect) == (False, "cancel")
    paced.until(lambda: [usage for usage in paced_log.usage() if usage.reply == done.id])
    assert wendy.reply(done.id, 1 - edge)["text"] == reply.text
    assert not [turn for turn in paced_log.turns() if turn.reply == done.id]
    assert reply.accepted.conversation not in wendy.ask("GET", "/v1/conversations").text


@pytest.mark.parametrize("edge", EDGES)
def test_a_stream_is_the_same_reply_with_its_counts_at_the_end(stock: Stock, edge: int) -> None:
    *chunks, counted = list(stock.hear("one two three", edge, stream_options={"include_usage": True}))
    assert text_in(chunks) == "one two three"
    assert [chunk.choices[0].finish_reason for chunk in chunks][-2:] == [None, "stop"]
    assert [chunk.choices[0].delta.role for chunk in chunks] == ["assistant"] + [None] * (len(chunks) - 1)
    assert counted.usage and (counted.choices, counted.usage.completion_tokens) == ([], len(chunks) - 2)


@pytest.mark.parametrize(
    "roles", [["user"], ["system", "user"], ["user", "assistant", "user"], ["user", "system", "user"]]
)
def test_the_prompt_is_what_the_models_own_template_makes_of_the_messages(
    paced: MendedStack, stock: Stock, paced_log: Records, template: jinja2.Template, roles: list[str]
) -> None:
    messages: list[Any] = [{"role": role, "content": f"message {n}"} for n, role in enumerate(roles)]
    with stock.at(0) as client:
        done = client.chat.completions.create(model=MODEL, messages=messages)
    spelled = template.render(messages=messages, add_generation_prompt=True)
    [request] = paced_log.requests(ReplyId(done.id))
    tokenizer = Tokenizer.from_file(str(paced.folder / "models" / MODEL / "tokenizer.json"))
    assert unpack_ids(request.prompt) == tuple(tokenizer.encode(spelled).ids)
    assert done.usage and done.usage.prompt_tokens == len(unpack_ids(request.prompt))


def test_stop_and_max_tokens_end_a_completion(stock: Stock) -> None:
    stopped = stock.ask("one two three four", stop=["three"], seed=1, temperature=0.5, top_p=0.9)
    short = stock.ask("one two three four", max_completion_tokens=2)
    assert (stopped.choices[0].message.content, stopped.choices[0].finish_reason) == ("one two ", "stop")
    assert (short.choices[0].message.content, short.choices[0].finish_reason) == ("one two", "length")


@pytest.mark.parametrize(
    ("fields", "kind", "param"),
    [
        ({"n": 2}, openai.BadRequestError, "n"),
        ({"logit_bias": {"5": 1}}, openai.BadRequestError, "logit_bias"),
        ({"model": "gpt-9"}, openai.NotFoundError, "model"),
        ({"max_tokens": 8192}, openai.BadRequestError, "messages"),
        ({"messages": said("word " * 9000)}, openai.BadRequestError, "messages"),
    ],
)
def test_a_refusal_raises_what_the_client_has_for_it(
    stock: Stock, fields: dict[str, Any], kind: type[openai.APIStatusError], param: str
) -> None:
    for edge in EDGES:
        with stock.at(edge) as client, pytest.raises(kind) as caught:
            client.chat.completions.create(**{"model": MODEL, "messages": said("hi"), **fields})
        assert (caught.value.param, bool(caught.value.request_id)) == (param, True)


def test_one_key_is_one_reply_however_and_wherever_it_is_asked(
    paced: MendedStack, stock: Stock, paced_log: Records
) -> None:
    key = {"Idempotency-Key": "completion-1"}
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda n: stock.ask("only once", n % 2, extra_headers=key), range(4)))
    heard = list(stock.hear("only once", 1, extra_headers=key))
    [reply] = {completion.id for completion in done} | {chunk.id for chunk in heard}
    assert text_in(heard) == "only once"
    with pytest.raises(openai.ConflictError):
        stock.ask("something else", 1, extra_headers=key)
    paced.until(lambda: [usage for usage in paced_log.usage() if usage.reply == reply])
    assert len({usage.conversation for usage in paced_log.usage() if usage.reply == reply}) == 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_cancels(
    paced: MendedStack, stock: Stock, wendy: Client, paced_log: Records, stream: bool
) -> None:
    key, before = {"Idempotency-Key": f"leaving-{stream}"}, paced_log.ends("messages")
    with ExitStack() as opened:
        raw = opened.enter_context(wendy.connect())
        body = orjson.dumps(body_of(LONG + LONG, stream=stream))
        raw.sendall(head_of(paced, wendy, len(body), key["Idempotency-Key"]) + body)
        paced.until(lambda: [posted for posted in paced_log.posted(before) if posted.reply in paced_log.replies()])
        reply = paced_log.posted(before)[0].reply
        paced.until(lambda: paced_log.replies()[reply].last > 3 and paced_log.replies()[reply].listeners)
    cancelled = ended(paced, paced_log, reply)
    assert (cancelled.state, cancelled.reason) == (State.STOPPED, "abandoned")
    paced.until(lambda: paced_log.settled(reply))
    assert (
        stock.ask("only now", 1, extra_headers={"Idempotency-Key": "another"}).choices[0].message.content == "only now"
    )


def head_of(paced: MendedStack, user: Client, length: int, key: str) -> bytes:
    lines = [
        f"POST {PATH} HTTP/1.1", "Host: edge", f"Authorization: Bearer {paced.keys[user.user]}",
        f"Content-Length: {length}", f"Idempotency-Key: {key}", "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode()


def test_a_stream_that_is_cut_raises_and_never_looks_finished(paced: MendedStack, stock: Stock) -> None:
    heard: list[ChatCompletionChunk] = []
    with paced.without("edge-0"):
        pass  # its id is fresh, so that what is killed below is what this test streams from
    with ExitStack() as killed, pytest.raises(openai.APIError):
        for chunk in stock.hear(LONG, 0):
            heard.append(chunk)
            if len(heard) == 10:
                killed.enter_context(paced.without("edge-0"))
    assert len(heard) >= 10
    assert all(chunk.choices[0].finish_reason is None for chunk in heard)


def test_the_other_edge_says_an_error_when_it_is_told_to_leave(paced: MendedStack, stock: Stock) -> None:
    heard = []
    with pytest.raises(openai.APIError):
        for chunk in stock.hear(LONG, 1):
            heard.append(chunk)
            if len(heard) == 5:
                paced.restart("edge-1")
    assert all(chunk.choices[0].finish_reason is None for chunk in heard)


def test_silence_before_the_first_token_is_survived(paced: MendedStack, stock: Stock, wendy: Client) -> None:
    with ThreadPoolExecutor(1) as pool:
        with paced.without(REPLICA):
            waiting = pool.submit(lambda: list(stock.hear("at last", 1)))
            with wendy.http.stream("POST", paced.urls[0] + PATH, json=body_of("x", stream=True)) as silent:
                heard = silent.iter_text()
                assert set("".join(next(heard) for _ in range(3)).split("\n")) == {": ping", ""}
        assert text_in(waiting.result()) == "at last"


def test_a_completion_that_is_shed_has_a_status_and_a_time_to_retry(
    paced: MendedStack, stock: Stock, wendy: Client
) -> None:
    with ThreadPoolExecutor(20) as pool:
        with paced.without(REPLICA):
            body = body_of("crowded")
            posts = [
                pool.submit(wendy.ask, "POST", PATH, n % 2, json=body, timeout=PATIENCE_S)
                for n in range(ROOM + BACKLOG + 3)
            ]
            paced.until(lambda: any(post.done() and post.result().status_code == 503 for post in posts))
        answers = [post.result() for post in posts]
    shed = [answer for answer in answers if answer.status_code == 503]
    assert {answer.json()["error"]["code"] for answer in shed} == {"overloaded"}
    assert all(int(answer.headers["Retry-After"]) >= 1 for answer in shed)
    served = [answer.json() for answer in answers if answer.status_code == 200]
    assert {completion["choices"][0]["message"]["content"] for completion in served} == {"crowded"}


@pytest.mark.parametrize("edge", EDGES)
def test_other_clients_read_the_same_stream(paced: MendedStack, wendy: Client, edge: int) -> None:
    url, body = paced.urls[edge] + PATH, body_of("naïve\n\ndata: x", stream=True)
    with httpx_sse.connect_sse(wendy.http, "POST", url, json=body) as source:
        *by_httpx, done = [event.data for event in source.iter_sse()]
    by_curl = curl(paced, wendy, url, body)
    assert (done, by_curl.returncode, by_curl.stdout.endswith(b"data: [DONE]\n\n")) == ("[DONE]", 0, True)
    for chunks in (by_httpx, [line[6:] for line in by_curl.stdout.decode().split("\n\n")[:-2]]):
        deltas = [orjson.loads(chunk)["choices"][0]["delta"].get("content", "") for chunk in chunks]
        assert "".join(deltas) == "naïve\n\ndata: x"


def curl(paced: MendedStack, user: Client, url: str, body: dict[str, Any]) -> subprocess.CompletedProcess[bytes]:
    """What the command line's client makes of a completion."""
    key = f"Authorization: Bearer {paced.keys[user.user]}"
    command = ["curl", "-sN", "--noproxy", "*", "--max-time", str(PATIENCE_S), "-H", key, "-d", orjson.dumps(body), url]
    return subprocess.run(command, capture_output=True, check=False)


def test_the_models_are_those_that_are_served(stock: Stock) -> None:
    for edge in EDGES:
        with stock.at(edge) as client:
            assert [client.models.retrieve(model.id).id for model in client.models.list()] == [MODEL]
            with pytest.raises(openai.NotFoundError):
                client.models.retrieve("gpt-9")
