"""Bytes that are no event, in every topic: the stages go on, and what somebody should look at is put aside once."""

from __future__ import annotations

import random
from collections import Counter

from infra.config import UpConfig
from schemas import reply_records as r
from schemas.events import Origin, SchemaPublished, Tick
from schemas.settings import load
from tests.services.client import Client, text_of
from tests.services.records import Records, balanced
from tests.services.running import REPLICA, MendedStack
from topics.catalog import MESSAGES, REPLIES, SCHEMAS, TIERS, TURNS, Sizes, catalog, generate_topic, lane_topic

STAGES = load(UpConfig, {}).stages
PUT_ASIDE = {
    MESSAGES, REPLIES, TURNS, "commands.main",
    *(topic("main", tier) for topic in (generate_topic, lane_topic) for tier in TIERS),
}  # fmt: skip
UNKNOWN_FINGERPRINT = b"\xc3\x01" + b"\x99" * 8 + b"whatever"
UNKNOWN_CONFLUENT_ID = b"\x00\x7f\xff\xff\xfe" + b"whatever"


def poison(log: Records, topic: str, reply: str) -> list[Origin]:
    """Writes bad records to a topic; returns those that somebody has to put aside."""
    noise = random.Random(topic).randbytes(40)
    truncated = log.encoded(r.Failed("a reason that is cut off"))[:-5]
    key = f"{reply}/poison/0".encode() if topic == REPLIES else b"poison"
    bad = [noise, b"", truncated, UNKNOWN_FINGERPRINT, UNKNOWN_CONFLUENT_ID]
    _, *undecodable = log.append(topic, key, None, *bad)
    return undecodable if topic in PUT_ASIDE else []


def eight_chats(wendy: Client, name: str) -> None:
    """As many as the first edge has home partitions, so that each gets one."""
    for n in range(8):
        assert text_of(wendy.follow(wendy.say(f"{name}-{n}", f"still here {n}"))) == f"still here {n}"


def put_aside(log: Records) -> Counter[Origin]:
    return Counter(letter.origin for letter in log.dead_letters())


def test_bad_records_in_every_topic_stop_nobody_and_are_put_aside_once(
    paced: MendedStack, wendy: Client, paced_log: Records
) -> None:
    log, crashes = paced_log, paced.crashes()
    reply = wendy.say("poisoned", "hello")
    wendy.follow(reply)
    topics = [topic.name for topic in catalog(Sizes())]
    bad = [origin for topic in topics if topic != SCHEMAS for origin in poison(log, topic, reply)]
    bad += poison(log, SCHEMAS, reply)
    eight_chats(wendy, "poisoned")
    paced.until(lambda: set(bad) <= put_aside(log).keys())
    assert {origin: put_aside(log)[origin] for origin in bad} == dict.fromkeys(bad, 1)
    assert paced.crashes() == crashes
    paced.restart(*STAGES)
    eight_chats(wendy, "poisoned-again")
    paced.until(lambda: balanced(log))
    assert {origin: put_aside(log)[origin] for origin in bad} == dict.fromkeys(bad, 1)
    assert paced.crashes() == {name: count + (name in STAGES) for name, count in crashes.items()}


def test_a_schema_that_is_none_teaches_nothing_and_stops_nobody(
    paced: MendedStack, wendy: Client, paced_log: Records
) -> None:
    log, crashes = paced_log, paced.crashes()
    texts = ("no JSON", '{"type": "nonsense"}', '{"type": "record"}', "7", '"string"', "[]")
    log.append(SCHEMAS, b"poison", *(log.encoded(SchemaPublished(b"\x98" * 8, text)) for text in texts))
    bad = [origin for topic in sorted(PUT_ASIDE) for origin in log.append(topic, b"poison", UNKNOWN_FINGERPRINT)]
    paced.until(lambda: set(bad) <= put_aside(log).keys())
    eight_chats(wendy, "schemas")
    assert paced.crashes() == crashes


def test_an_event_in_the_wrong_topic_stops_nobody(paced: MendedStack, wendy: Client, paced_log: Records) -> None:
    log, crashes = paced_log, paced.crashes()
    reply = wendy.say("wrong-topic", "hello")
    wendy.follow(reply)
    for topic in (topic.name for topic in catalog(Sizes())):
        log.append(topic, f"{reply}/poison/0".encode(), log.encoded(Tick()), log.encoded(r.Failed("wrong topic")))
    eight_chats(wendy, "wrong-topic")
    assert text_of(wendy.follow(reply, edge=1)) == "hello"
    paced.until(lambda: balanced(log))
    assert paced.crashes() == crashes


def test_a_request_that_nobody_can_read_ends_its_reply(paced: MendedStack, wendy: Client, paced_log: Records) -> None:
    with paced.without(REPLICA):
        reply = wendy.say("unreadable", "hello")
        paced_log.append(generate_topic("main", "free"), reply.encode(), UNKNOWN_FINGERPRINT)
        frames = wendy.follow(reply)
    assert b'"reason":"internal"' in frames[-1]
    paced.until(lambda: balanced(paced_log))
