"""A reply that goes on: over reloads, dead networks, dead edges and tabs that do not know of each other."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.chromium import Chat, counted
from tests.services.running import MendedStack

LONG = counted(90)


def test_a_reload_in_the_middle_goes_on(chat: Chat) -> None:
    chat.send(LONG)
    chat.until_written("n5 ")
    chat.page.reload()
    chat.until_state("finished")
    assert chat.text.inner_text() == LONG
    assert chat.sent.all_inner_texts() == [LONG]


def test_a_reload_before_the_answer_sends_nothing_twice(chat: Chat) -> None:
    chat.page.route("**/messages", lambda route: route.abort(), times=1)
    chat.send("only once")
    chat.page.reload()
    chat.until_state("finished")
    chat.page.reload()
    chat.until_state("finished")
    assert chat.sent.all_inner_texts() == ["only once"]
    assert chat.replies.count() == 1


def test_a_lost_answer_to_a_message_is_asked_for_with_the_same_key(chat: Chat) -> None:
    keys: list[str] = []

    def lose(route: object) -> None:
        keys.append(route.request.headers["idempotency-key"])  # type: ignore[attr-defined]
        if len(keys) == 1:
            route.fetch()  # type: ignore[attr-defined]
            route.abort()  # type: ignore[attr-defined]
        else:
            route.continue_()  # type: ignore[attr-defined]

    chat.page.route("**/messages", lose)
    chat.ask("said once")
    assert len(keys) >= 2
    assert len(set(keys)) == 1
    chat.page.reload()
    chat.until_state("finished")
    assert chat.sent.all_inner_texts() == ["said once"]


def test_a_dropped_network_is_shown_and_survived(chat: Chat) -> None:
    chat.send(LONG)
    chat.until_written("n5 ")
    chat.context.set_offline(True)
    chat.until_state("offline")
    chat.context.set_offline(False)
    chat.until_state("finished")
    assert chat.text.inner_text() == LONG


def test_a_reply_goes_on_at_the_other_edge_when_its_edge_is_killed(
    opened: Callable[..., Chat], slow: MendedStack
) -> None:
    chat = opened()
    asked: list[str] = []
    chat.page.on("request", lambda request: asked.append(request.url) if "/events" in request.url else None)
    chat.send(LONG)
    chat.until_written("n5 ")
    with slow.without("edge-0"):
        chat.until_state("finished")
        assert chat.text.inner_text() == LONG
        chat.ask("at the other edge")
    assert asked[0].startswith(slow.urls[0])
    assert asked[-1].startswith(slow.urls[1])


def test_a_reply_goes_on_when_its_replica_is_killed(chat: Chat, slow: MendedStack) -> None:
    chat.send(LONG)
    chat.until_written("n5 ")
    with slow.without("replica-0"):
        chat.until_state("resuming")
    chat.until_state("finished")
    assert chat.text.inner_text() == LONG


def test_two_tabs_do_not_disturb_each_other(chat: Chat) -> None:
    other = chat.other_tab()
    chat.send(LONG)
    other.send(f"other {LONG}")
    chat.until_state("finished")
    other.until_state("finished")
    assert chat.text.inner_text() == LONG
    assert other.text.inner_text() == f"other {LONG}"


def test_another_browser_sees_a_reply_that_is_being_written(opened: Callable[..., Chat]) -> None:
    chat, elsewhere = opened(), opened(edge=1)
    chat.send(LONG)
    chat.until_written("n5 ")
    expect(chat.rows.first).to_be_visible()
    elsewhere.page.goto(f"{elsewhere.url}/{chat.page.url[len(chat.url) :].lstrip('/')}")
    elsewhere.page.reload()
    elsewhere.until_state("finished")
    assert elsewhere.text.inner_text() == LONG


def test_a_refusal_says_how_long_to_wait_and_offers_another_try(chat: Chat) -> None:
    body = '{"error": {"message": "over your quota", "type": "rate_limit_error", "code": "quota", "param": null}}'
    headers = {"Retry-After": "2", "Content-Type": "application/json"}
    chat.page.route("**/messages", lambda route: route.fulfill(status=429, headers=headers, body=body), times=1)
    chat.send("too much")
    expect(chat.replies.last.locator(".words")).to_have_text("Over your quota. Try again in 2 s.")
    chat.page.get_by_role("button", name="Try again", exact=True).click()
    chat.until_state("finished")
    assert chat.text.inner_text() == "too much"
