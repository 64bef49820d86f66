"""Conversations named and deleted on the whole stack: both edges agree at once, and nothing deleted comes back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.services.client import Client, event_of, text_of
from tests.services.records import Records, balanced
from tests.services.running import MendedStack

LONG = "again " * 200


def path(conversation: str) -> str:
    return f"/v1/conversations/{conversation}"


def titles(client: Client, edge: int) -> dict[str, str]:
    listed = client.ask("GET", "/v1/conversations", edge, params={"limit": 200}).json()["conversations"]
    return {line["id"]: line["title"] for line in listed}


def delete(client: Client, conversation: str, edge: int = 0) -> httpx.Response:
    return client.ask("DELETE", path(conversation), edge)


def said(client: Client, conversation: str) -> list[str]:
    return [message["text"] for message in client.messages(conversation)]


def test_a_name_is_seen_on_both_edges_at_once(paced: MendedStack, wendy: Client) -> None:
    wendy.follow(wendy.say("named", "what is\n this about?"))
    paced.until(lambda: len(said(wendy, "named")) == 2)
    assert titles(wendy, 1)["named"] == "what is this about?"
    for n in range(4):
        assert wendy.ask("PATCH", path("named"), n % 2, json={"title": f"Rome {n}"}).status_code == 200
        assert [titles(wendy, edge)["named"] for edge in (0, 1)] == [f"Rome {n}"] * 2


def test_a_deletion_in_the_middle_of_a_reply_stops_it_and_it_is_paid_for_once(
    paced: MendedStack, wendy: Client, paced_log: Records
) -> None:
    reply = wendy.say("cut-short", LONG)
    with wendy.stream(reply) as stream:
        frames = [next(stream) for _ in range(12)]
        assert delete(wendy, "cut-short", edge=1).status_code == 204
        assert [wendy.ask("GET", path("cut-short"), edge).status_code for edge in (0, 1)] == [404, 404]
        frames += stream
    assert event_of(frames[-1]) == "stopped"
    paced.until(lambda: balanced(paced_log))  # the answer lies in `turns` now, behind the deletion
    assert [usage.state for usage in paced_log.usage() if usage.reply == reply] == ["stopped"]
    assert text_of(wendy.follow(wendy.say("cut-short", "anew"))) == "anew"
    paced.until(lambda: len(said(wendy, "cut-short")) == 2)
    assert said(wendy, "cut-short") == ["anew", "anew"]


def test_a_conversation_is_deleted_once_and_its_id_begins_another(paced: MendedStack, wendy: Client) -> None:
    first = wendy.say("twice", "before", edge=1)
    assert delete(wendy, "twice").status_code == 204  # though the store may not have heard of it yet
    assert [delete(wendy, "twice", edge).status_code for edge in (0, 1)] == [404, 404]
    second = wendy.say("twice", "after")
    assert {event_of(wendy.follow(reply)[-1]) for reply in (first, second)} <= {"stopped", "finished"}
    paced.until(lambda: said(wendy, "twice") == ["after", "after"])
    assert [titles(wendy, edge)["twice"] for edge in (0, 1)] == ["after", "after"]


def test_while_history_is_down_a_deletion_is_not_certain_and_then_it_is_done(paced: MendedStack, wendy: Client) -> None:
    wendy.follow(wendy.say("without-history", "hello"))
    paced.until(lambda: len(said(wendy, "without-history")) == 2)
    with paced.without("history"):
        answer = delete(wendy, "without-history")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    paced.until(lambda: wendy.ask("GET", path("without-history"), 1).status_code == 404)
    assert delete(wendy, "without-history").status_code == 404


def test_an_intake_that_dies_and_repeats_itself_brings_nothing_back(paced: MendedStack, wendy: Client) -> None:
    wendy.follow(wendy.say("repeated", "old"))
    paced.until(lambda: len(said(wendy, "repeated")) == 2)
    assert delete(wendy, "repeated").status_code == 204
    with ThreadPoolExecutor(1) as pool:
        with paced.without("intake"):
            said_again = pool.submit(wendy.say, "repeated", "new")
            paced.restart("history")
        assert text_of(wendy.follow(said_again.result())) == "new"
    paced.until(lambda: len(said(wendy, "repeated")) >= 2)
    assert said(wendy, "repeated") == ["new", "new"]


def test_a_deletion_that_finds_intake_dead_is_done_when_it_is_back(paced: MendedStack, wendy: Client) -> None:
    reply = wendy.say("waits", LONG)
    paced.until(lambda: said(wendy, "waits"))
    with ThreadPoolExecutor(1) as pool:
        with paced.without("intake"):
            asked = pool.submit(delete, wendy, "waits")
        assert asked.result().status_code in (204, 503)
    paced.until(lambda: wendy.ask("GET", path("waits"), 1).status_code == 404)
    assert event_of(wendy.follow(reply)[-1]) in ("stopped", "finished")


def test_branches_are_answered_shown_and_gone_on_with_at_both_edges(paced: MendedStack, wendy: Client) -> None:
    wendy.follow(wendy.say("tree", "one", system="Be brief."))
    paced.until(lambda: len(said(wendy, "tree")) == 2)
    question, answer = wendy.messages("tree")
    again = wendy.ask("POST", f"{path('tree')}/messages", 1, json={"parent": question["id"]})
    assert again.status_code == 202
    wendy.follow(again.json()["reply"])
    paced.until(lambda: len(wendy.messages("tree")[-1]["siblings"]) == 2)
    wendy.follow(wendy.say("tree", "other", parent="root"))
    paced.until(lambda: said(wendy, "tree") == ["other", "other"])
    wendy.follow(wendy.say("tree", "on", edge=1, parent=answer["id"]))
    paced.until(lambda: said(wendy, "tree") == ["one", "one", "on", "on"])
    for edge in (0, 1):
        page = wendy.ask("GET", path("tree"), edge, params={"through": again.json()["reply"].replace("r", "a-", 1)})
        assert page.status_code == 400, "a reply is no message"
        shown = wendy.ask("GET", path("tree"), edge).json()
        assert (shown["system"], [len(one["siblings"]) for one in shown["messages"]]) == ("Be brief.", [2, 2, 1, 1])
    refused = wendy.post("tree", "lost", parent="u-nowhere")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "parent_not_found")
