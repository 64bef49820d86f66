"""One Idempotency-Key is one reply: at both edges at once, with another text, and long after its log has expired."""

from __future__ import annotations

import contextlib
import itertools
from concurrent.futures import ThreadPoolExecutor

import httpx
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

from schemas.ids import ReplyId, reply_partition
from tests.services.client import Client, frames_of, text_of
from tests.services.records import Records, balanced
from tests.services.running import MendedStack, until
from topics.catalog import REPLIES

STORM = 100


def forget(kafka: str, partition: int) -> None:
    """Deletes what a partition of `replies` holds, as retention does one day."""
    place = TopicPartition(REPLIES, partition, OFFSET_END)
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.delete_records([place])[place].result(60)


def test_six_posts_at_once_with_one_key_are_one_reply(alice: Client, log: Records) -> None:
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda n: alice.post("six", "only once", n % 2, key="k6"), range(6)))
    assert {answer.status_code for answer in answers} == {202}
    [reply] = {answer.json()["reply"] for answer in answers}
    assert text_of(alice.follow(reply)) == "only once"
    until(lambda: [usage for usage in log.usage() if usage.conversation == "six"])
    assert [usage.reply for usage in log.usage() if usage.conversation == "six"] == [reply]
    turns = [turn for turn in log.turns() if turn.conversation == "six"]
    assert [(turn.turn.role, turn.reply) for turn in turns] == [("user", reply), ("assistant", reply)]


def insist(client: Client, n: int) -> ReplyId:
    """Posts the same message under the same key, at one edge and then the other, until it is taken."""
    for edge in itertools.cycle((n % 2, 1 - n % 2)):
        with contextlib.suppress(httpx.TransportError):
            answer = client.post("storm", "only once", edge, key="storm")
            if answer.status_code == 202:
                return ReplyId(answer.json()["reply"])
            assert answer.status_code == 503, answer.text
    raise AssertionError("there are no edges")


def test_a_hundred_posts_with_one_key_while_intake_starts_again_are_one_reply(
    paced: MendedStack, wendy: Client, paced_log: Records
) -> None:
    with ThreadPoolExecutor(STORM) as pool:
        posts = [pool.submit(insist, wendy, n) for n in range(STORM // 2)]
        with paced.without("intake"):
            posts += [pool.submit(insist, wendy, n) for n in range(STORM // 2)]
        paced.until(lambda: all(post.done() for post in posts))
    [reply] = {post.result() for post in posts}
    assert text_of(wendy.follow(reply)) == "only once"
    paced.until(lambda: [usage for usage in paced_log.usage() if usage.conversation == "storm"])
    paced.until(lambda: balanced(paced_log))
    assert [usage.reply for usage in paced_log.usage() if usage.conversation == "storm"] == [reply]
    assert len(wendy.messages("storm")) == 2


def test_a_key_is_known_after_everything_has_started_again(paced: MendedStack, wendy: Client) -> None:
    reply = wendy.post("restarted", "once", key="k3").json()["reply"]
    wendy.follow(reply)
    paced.until(lambda: len(wendy.messages("restarted")) == 2)
    with paced.stopped():
        pass
    assert [wendy.post("restarted", "once", edge, key="k3").json()["reply"] for edge in (0, 1)] == [reply, reply]
    assert wendy.post("restarted", "twice", key="k3").status_code == 409


def test_another_text_under_a_used_key_is_a_conflict(alice: Client, log: Records) -> None:
    assert alice.post("reused", "first", key="k1").status_code == 202
    for edge in (0, 1):
        refused = alice.post("reused", "second", edge, key="k1")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    assert alice.post("reused-elsewhere", "second", key="k1").status_code == 202
    assert len([turn for turn in log.turns() if turn.conversation == "reused" and turn.turn.role == "user"]) == 1


def test_a_repeat_after_the_log_has_expired_is_answered_by_the_stored_turn(
    paced: MendedStack, wendy: Client, paced_log: Records
) -> None:
    text = "worth keeping"
    reply = wendy.post("expired", text, key="k2").json()["reply"]
    wendy.follow(reply)
    paced.until(lambda: len(wendy.messages("expired")) == 2)
    forget(paced.kafka, reply_partition(reply))
    for edge in ("edge-0", "edge-1"):
        paced.restart(edge)
    path, sse = "/v1/conversations/expired/messages", {"Idempotency-Key": "k2", "Accept": "text/event-stream"}
    with ThreadPoolExecutor(2) as pool:  # a reply this young is waited for before the store is asked
        again = list(pool.map(lambda edge: wendy.ask("POST", path, edge, json={"text": text}, headers=sse), (0, 1)))
    assert [text_of(frames_of([answer.content])) for answer in again] == [text, text]
    assert wendy.post("expired", text, key="k2").json()["reply"] == reply
    assert wendy.ask("GET", f"/v1/replies/{reply}/events").status_code == 410
    assert [usage.reply for usage in paced_log.usage() if usage.conversation == "expired"] == [reply]
