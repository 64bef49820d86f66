"""The command line against a running stack, each command a process of its own."""

from __future__ import annotations

import json
import os
import subprocess

from infra.local.stack import laneway
from tests.services.client import Client
from tests.stack import Stack


def run(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"LANEWAY_DATA": str(stack.folder)}
    return subprocess.run(laneway(*arguments), env=env, capture_output=True, text=True, timeout=100, check=False)


def test_status_shows_that_everything_is_ready(stack: Stack) -> None:
    done = run(stack, "status", "--json")
    status = json.loads(done.stdout)
    assert (done.returncode, status["ready"], status["edges"]) == (0, True, list(stack.urls))
    names = [row["name"] for row in status["processes"]]
    assert names == ["kafka", "stages", "replica-0", "edge-0", "edge-1"]
    assert status["api_key"] == stack.keys["alice"]


def test_tail_prints_a_replys_records_until_its_end(stack: Stack, alice: Client) -> None:
    reply = alice.say("tailed", "hello there")
    done = run(stack, "tail", reply)
    assert done.returncode == 0
    kinds = [line.split(" counted ")[0].split()[-1] for line in done.stdout.splitlines() if " counted " in line]
    assert [kinds[0], kinds[-1]] == ["Accepted", "Finished"]
    assert {"Started", "Tokens"} <= set(kinds)
    assert "texts=('hello',)" in done.stdout


def test_tail_of_an_unknown_reply_says_so(stack: Stack, alice: Client) -> None:
    reply = alice.say("tailed-not", "hello")
    done = run(stack, "tail", f"{reply[:-8]}00000000")
    assert done.returncode == 1
    assert "the log holds no record" in done.stderr
    assert run(stack, "tail", "nonsense").returncode == 1


def test_topics_are_as_the_catalog_says(stack: Stack) -> None:
    done = run(stack, "topics")
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 missing" in done.stdout
    assert len(done.stdout.splitlines()) == 1


def test_chat_says_one_message_and_shows_the_reply(stack: Stack, alice: Client) -> None:
    done = run(stack, "chat", "hello", "--conversation", "from-the-terminal")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert "--conversation from-the-terminal" in done.stderr
    assert run(stack, "chat", "and again", "--conversation", "from-the-terminal").stdout == "and again\n"
    assert [message["text"] for message in alice.messages("from-the-terminal")][:2] == ["hello", "hello"]
