"""Quotas over two edges, two pools and real processes that die: never overrun, and equal to the usage records."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.local.stack import laneway, says_ready
from schemas.ids import partition_of
from tests.services.client import Client, data_of, event_of, text_of
from tests.services.records import Records
from tests.services.running import PATIENCE_S, MendedStack
from topics.catalog import Sizes

PARALLEL, LIMIT, FROZEN_S = 50, 100, 5.0
PLANS = f"""
[free]
tier = "free"
mini = "mini"
[free.limits."*"]
tokens = "{LIMIT}/7d"
[free.limits.mini]
requests = "1000/7d"
"""
# Two users whose partitions lie in different halves, so that of two intakes each has one.
USERS = tuple(
    next(name for name in (f"user{n}" for n in range(99)) if partition_of(name, Sizes().users) // 8 == half)
    for half in (0, 1)
)
OTHERS = ("alice", "bob", "carol", "dora", "erin")


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MendedStack]:
    """Two pools, each stage a process, and plans that are applied by command."""
    folder = tmp_path_factory.mktemp("metered")
    env = {"LANEWAY_SPLIT_STAGES": "true", "LANEWAY_MINI": "true"}
    with MendedStack(folder / "stack", env, (*OTHERS, *USERS)) as running:
        (folder / "plans.toml").write_text(PLANS)
        assert "free" in command(running, "plans", "apply", str(folder / "plans.toml"))
        yield running


@pytest.fixture
def log(metered: MendedStack) -> Iterator[Records]:
    with Records(metered.kafka) as records:
        yield records


def command(stack: MendedStack, *arguments: str) -> str:
    env = os.environ | {"LANEWAY_DATA": str(stack.folder)}
    done = subprocess.run(laneway(*arguments), env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_mini(stack: MendedStack, user: str, *limits: str) -> None:
    command(stack, "limits", "set", user, "mini:requests=0/7d", *limits)


def decided(client: Client, conversation: str, n: int, key: str) -> httpx.Response:
    """Asks both edges in turn, under one key, until one says what became of it."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            answer = client.post(conversation, "hello there", n % 2, key, max_tokens=8)
            if answer.status_code in (202, 429):
                return answer
            assert answer.status_code == 503, answer.text
        n += 1
        time.sleep(0.1)
    raise AssertionError(f"{conversation} was not decided")


def storm(client: Client, name: str, meanwhile: Callable[[], object] = lambda: None) -> list[httpx.Response]:
    """So many requests at once, and what they were told; `meanwhile` begins when the first are decided."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        asked: list[Future[httpx.Response]] = [
            pool.submit(decided, client, f"{name}-{n}", n, f"{name}-{n}") for n in range(PARALLEL)
        ]
        while sum(one.done() for one in asked) < 2:
            time.sleep(0.01)
        meanwhile()
        return [one.result() for one in asked]


def limit_of(client: Client, what: str = "tokens") -> dict[str, Any]:
    """The balance of that kind of the model that is not the mini one."""
    answer = client.ask("GET", "/v1/usage")
    assert answer.status_code == 200, answer.text
    [found] = [line for line in answer.json()["limits"] if line["what"] == what and line["model"] != "mini"]
    return dict(found)


def check(stack: MendedStack, client: Client, log: Records, most: int, answers: list[httpx.Response]) -> None:
    """After all have ended: the ledger is the sum of the usage records, and over the limit by one request at most."""
    stack.until(lambda: limit_of(client)["reserved"] == 0)
    taken = {answer.json()["reply"] for answer in answers if answer.status_code == 202}
    stack.until(lambda: taken <= {u.reply for u in log.usage()})  # of one transaction, but seen apart
    usage = [u for u in log.usage() if u.user == client.user]
    each = [u.prompt_tokens + u.completion_tokens for u in usage]
    assert Counter(u.reply for u in usage) == Counter(taken)
    assert limit_of(client)["used"] == sum(each) <= most + max(each)
    assert taken and any(answer.status_code == 429 for answer in answers)


def test_fifty_at_once_over_two_edges_do_not_overrun_a_limit(metered: MendedStack, log: Records) -> None:
    without_mini(metered, "alice")
    with Client(metered, "alice") as alice:
        answers = storm(alice, "fifty")
        check(metered, alice, log, LIMIT, answers)
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.headers["x-ratelimit-limit-tokens"] == str(LIMIT)
        assert refused.json()["error"]["code"] == "quota"


def test_nor_when_intake_is_killed_among_them(metered: MendedStack, log: Records) -> None:
    without_mini(metered, "bob", "tokens=900/7d")

    def killed() -> None:
        with metered.without("intake"):
            pass

    with Client(metered, "bob") as bob:
        check(metered, bob, log, 900, storm(bob, "killed", killed))


def test_nor_when_one_of_two_intakes_stood_still(metered: MendedStack, log: Records) -> None:
    def frozen() -> None:
        metered.freeze("intake")
        time.sleep(FROZEN_S)
        metered.thaw("intake")

    with second_intake(metered), contextlib.ExitStack() as opened:
        clients = [opened.enter_context(Client(metered, user)) for user in USERS]
        for client in clients:
            without_mini(metered, client.user, "tokens=900/7d")
        with ThreadPoolExecutor(2) as pool:
            others = pool.submit(storm, clients[1], "other")
            answers = [storm(clients[0], "stood", frozen), others.result()]
        for client, told in zip(clients, answers, strict=True):
            check(metered, client, log, 900, told)


@contextlib.contextmanager
def second_intake(stack: MendedStack) -> Iterator[None]:
    """Another member of intake's group, for as long as it is needed."""
    supervisor = stack._stack.supervisor
    first = supervisor._all["intake"].child
    file = Path(first.env["LANEWAY_READY_FILE"] + "-1")
    own = {"LANEWAY_INSTANCE": "1", "LANEWAY_READY_FILE": str(file), "LANEWAY_METRICS_PORT": "0"}
    supervisor.start(replace(first, name="intake-1", env={**first.env, **own}, ready=says_ready(file)))
    stack.until(stack._all_ready)
    try:
        yield
    finally:
        supervisor.stop("intake-1")
        stack.until(stack._all_ready)


def test_a_storm_of_one_key_while_intake_restarts_reserves_once(metered: MendedStack, log: Records) -> None:
    without_mini(metered, "erin", "replies=5")
    with Client(metered, "erin") as erin, ThreadPoolExecutor(100) as pool:
        asked = [pool.submit(decided, erin, "one", n, "one-key") for n in range(100)]
        with metered.without("intake"):
            pass
        [reply] = {one.result().json()["reply"] for one in asked}
        metered.until(lambda: limit_of(erin, "replies")["reserved"] == 0)
        [usage] = [u for u in log.usage() if u.user == "erin"]
        assert usage.reply == reply
        assert limit_of(erin)["used"] == usage.prompt_tokens + usage.completion_tokens


def test_past_the_limit_the_mini_model_answers_from_its_own_pool(metered: MendedStack, log: Records) -> None:
    with Client(metered, "carol") as carol:
        answers = [decided(carol, f"mini-{n}", n, f"mini-{n}").json() for n in range(4)]
        told = [answer for answer in answers if "asked_model" in answer]
        assert told and {answer["model"] for answer in told} == {"mini"} and "asked_model" not in answers[0]
        frames = carol.follow(told[0]["reply"])
        assert (event_of(frames[0]), data_of(frames[0])["asked_model"]) == ("accepted", told[0]["asked_model"])
        assert text_of(frames) == "hello there"
        started = log.replies()[told[0]["reply"]].started
        assert started and started.replica == "mini/0"


def test_the_commands_show_what_holds_and_what_was_used(metered: MendedStack) -> None:
    command(metered, "limits", "set", "dora", "requests=7/month", "--time-zone", "Asia/Tokyo")
    with Client(metered, "dora") as dora:
        assert limit_of(dora, "requests")["limit"] == 7
        dora.follow(decided(dora, "shown", 0, "shown").json()["reply"])
        metered.until(lambda: limit_of(dora, "requests")["used"] == 1)
    told = json.loads(command(metered, "usage", "dora", "--json"))
    [requests] = [b for b in told["limits"] if b["what"] == "requests" and b["model"] != "mini"]
    assert (requests["used"], requests["window"], told["time_zone"]) == (1, "month", "Asia/Tokyo")
    assert "requests=7/month" in command(metered, "usage", "dora")
    metered.until(lambda: f"tokens={LIMIT}/7d" in shown_plans(metered))
    command(metered, "limits", "clear", "dora")
    with Client(metered, "dora") as dora:
        assert not [line for line in dora.ask("GET", "/v1/usage").json()["limits"] if line["window"] == "month"]


def shown_plans(stack: MendedStack) -> str:
    """What the command says once intake has committed them."""
    env = os.environ | {"LANEWAY_DATA": str(stack.folder)}
    done = subprocess.run(laneway("plans", "show"), env=env, capture_output=True, text=True, timeout=100, check=False)
    return done.stdout
