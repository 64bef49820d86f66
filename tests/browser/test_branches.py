"""Branches: a question asked otherwise, another answer, and the way between them, by mouse and by keyboard."""

from __future__ import annotations

from playwright.sync_api import Locator, expect

from tests.browser.chromium import Chat, counted


def tool(chat: Chat, message: Locator, name: str) -> Locator:
    return message.get_by_role("button", name=name)


def place(message: Locator) -> Locator:
    return message.locator(".branches .place")


def said(chat: Chat) -> list[str]:
    return chat.page.locator("#messages .text").all_inner_texts()


def questions(chat: Chat) -> Locator:
    return chat.page.locator(".message.user")


def edit(chat: Chat, message: Locator, text: str) -> None:
    tool(chat, message, "Edit this message").click()
    field = chat.page.get_by_role("textbox", name="Edit the message")
    expect(field).to_be_focused()
    field.fill(text)
    field.press("Enter")
    expect(chat.sent.last).to_have_text(text)
    chat.until_state("finished")


def test_an_edited_question_is_a_branch_and_the_other_one_is_a_click_away(chat: Chat) -> None:
    chat.ask("one")
    chat.ask("two")
    edit(chat, questions(chat).last, "three")
    assert said(chat) == ["one", "one", "three", "three"]
    expect(place(questions(chat).last)).to_have_text("2 of 2")
    tool(chat, questions(chat).last, "Previous version").click()
    expect(place(questions(chat).last)).to_have_text("1 of 2")
    assert said(chat) == ["one", "one", "two", "two"]
    expect(tool(chat, questions(chat).last, "Next version")).to_be_focused()


def test_what_is_sent_goes_on_from_the_branch_that_is_shown(chat: Chat) -> None:
    chat.ask("one")
    edit(chat, questions(chat).first, "other")
    expect(place(questions(chat).first)).to_have_text("2 of 2")
    tool(chat, questions(chat).first, "Previous version").click()
    expect(chat.sent.first).to_have_text("one")
    chat.ask("on")
    assert said(chat) == ["one", "one", "on", "on"]
    chat.page.reload()
    chat.until_state("finished")
    assert said(chat) == ["one", "one", "on", "on"]


def test_another_answer_stands_beside_the_first(chat: Chat) -> None:
    chat.ask("say it")
    tool(chat, chat.replies.last, "Answer again").click()
    expect(place(chat.replies.last)).to_have_text("2 of 2")
    assert said(chat) == ["say it", "say it"]
    chat.page.reload()
    chat.until_state("finished")
    expect(place(chat.replies.last)).to_have_text("2 of 2")


def test_a_reload_while_it_is_answered_again_goes_on(chat: Chat) -> None:
    chat.ask(counted(90))
    tool(chat, chat.replies.last, "Answer again").click()
    chat.until_state("writing")
    chat.until_written("n5 ")
    chat.page.reload()
    chat.until_state("finished")
    expect(place(chat.replies.last)).to_have_text("2 of 2")
    assert said(chat) == [counted(90), counted(90)]


def test_editing_is_left_with_escape_and_all_of_it_works_by_keyboard(chat: Chat) -> None:
    chat.ask("one")
    edit_button = tool(chat, questions(chat).last, "Edit this message")
    edit_button.focus()
    chat.page.keyboard.press("Enter")
    chat.page.keyboard.type("never sent")
    chat.page.keyboard.press("Escape")
    expect(edit_button).to_be_focused()
    chat.page.keyboard.press("Enter")
    chat.page.keyboard.press("ControlOrMeta+a")
    chat.page.keyboard.type("two")
    chat.page.keyboard.press("Enter")
    expect(chat.sent.last).to_have_text("two")
    chat.until_state("finished")
    expect(place(questions(chat).last)).to_have_text("2 of 2")
    assert said(chat) == ["two", "two"]
