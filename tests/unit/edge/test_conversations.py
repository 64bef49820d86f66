"""A user's conversations, a page at a time, from the store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from edge.conversations import page_text, read_page
from edge.errors import BadRequest
from schemas.events import ConversationDeleted, ConversationRenamed, Turn, TurnSaved
from schemas.ids import ConversationId, MessageId, ReplyId, UserId
from tests.unit.edge.running_edge import SIZES, RunningEdge
from topics.catalog import TURNS
from topics.errors import Unavailable
from topics.log import Append, Place
from topics.outputs import Routes
from topics.store.contract import Cursor, SavedAt


def saved(conversation: str, number: int, user: str = "alice", parent: int | None = None) -> SavedAt:
    message = MessageId(f"u-{conversation}-{number}")
    before = None if parent is None else MessageId(f"u-{conversation}-{parent}")
    turn = Turn(message, before, "user", f"text {number}", b"", "t", "complete")
    return SavedAt(
        number, TurnSaved(UserId(user), ConversationId(conversation), turn, ReplyId(f"r{number}"), "m1", number)
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEdge]:
    with RunningEdge(tmp_path_factory.mktemp("stored")) as edge:
        edge.store.save(saved(f"c{n % 3}", n, parent=n - 3 if n >= 3 else None) for n in range(9))
        edge.store.save([saved("theirs", 100, "bob")])
        yield edge


def get(edge: RunningEdge, path: str, **query: object) -> Any:
    with edge.client() as client:
        answer = client.get(path, params={name: str(value) for name, value in query.items()})
    return answer.json() if answer.status_code == 200 else answer


def ask(edge: RunningEdge, method: str, path: str, key: str = "alice-key", **options: Any) -> httpx.Response:
    with edge.client(key) as client:
        return client.request(method, path, **options)


def pages(edge: RunningEdge, path: str, name: str) -> list[list[dict[str, Any]]]:
    found, page = [], get(edge, path, limit=2)
    while True:
        found.append(page[name])
        if page["next"] is None:
            return found
        page = get(edge, path, limit=2, before=page["next"])


def test_a_list_is_the_newest_first_and_only_ones_own(stored: RunningEdge) -> None:
    listed = get(stored, "/v1/conversations")
    assert [line["id"] for line in listed["conversations"]] == ["c2", "c1", "c0"]
    assert listed["conversations"][0] == {
        "id": "c2",
        "title": "text 2",
        "messages": 3,
        "created_ms": 2,
        "updated_ms": 8,
    }
    assert listed["next"] is None


def test_pages_of_the_list_join_without_a_gap(stored: RunningEdge) -> None:
    assert [[line["id"] for line in page] for page in pages(stored, "/v1/conversations", "conversations")] == [
        ["c2", "c1"],
        ["c0"],
    ]


def test_pages_of_a_conversation_go_back_in_time(stored: RunningEdge) -> None:
    found = pages(stored, "/v1/conversations/c1", "messages")
    assert [[message["text"] for message in page] for page in found] == [["text 4", "text 7"], ["text 1"]]
    assert found[0][1] == {
        "id": "u-c1-7",
        "role": "user",
        "text": "text 7",
        "status": "complete",
        "reply": "r7",
        "model": "m1",
        "created_ms": 7,
        "parent": "u-c1-4",
        "siblings": ["u-c1-7"],
    }


def test_a_branch_is_shown_with_what_else_follows_the_same_message(mine: RunningEdge) -> None:
    mine.store.save(saved("c1", n, parent=parent) for n, parent in ((4, 1), (5, 4), (6, 1), (7, None)))
    newest, other = (get(mine, "/v1/conversations/c1", **query) for query in ({}, {"through": "u-c1-4"}))
    assert [message["text"] for message in newest["messages"]] == ["text 7"]
    assert newest["messages"][0]["siblings"] == ["u-c1-1", "u-c1-7"]
    assert [message["text"] for message in other["messages"]] == ["text 1", "text 4", "text 5"]
    assert other["messages"][1]["siblings"] == ["u-c1-4", "u-c1-6"]
    assert (other["system"], other["next"]) == ("", None)


def test_a_branch_through_a_message_that_is_not_there_is_400(stored: RunningEdge) -> None:
    for through in ("zz", "", "u-c2-2", "u-theirs-100"):
        answer = get(stored, "/v1/conversations/c1", through=through)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "through"), through


def test_an_unknown_and_a_foreign_conversation_look_alike(stored: RunningEdge) -> None:
    unknown, foreign = get(stored, "/v1/conversations/nowhere"), get(stored, "/v1/conversations/theirs")
    assert unknown.status_code == foreign.status_code == 404
    assert unknown.text.replace("nowhere", "theirs") == foreign.text


@pytest.mark.parametrize("limit", ["0", "201", "-1", "x", "1.0", ""])
def test_a_bad_limit_is_400(stored: RunningEdge, limit: str) -> None:
    assert get(stored, "/v1/conversations", limit=limit).status_code == 400


@pytest.mark.parametrize("conversation", ["c1", "a.b~c_d-e", "x" * 128])
def test_a_place_in_the_list_comes_back_from_its_text(conversation: str) -> None:
    cursor = Cursor(1_700_000_000_000, ConversationId(conversation))
    assert read_page(page_text(cursor)) == cursor


@pytest.mark.parametrize("text", ["", "x", "é", "!!!!", page_text(Cursor(-1, ConversationId("c"))), "AAAA"])
def test_a_made_up_place_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="before="):
        read_page(text)


def test_a_store_that_cannot_answer_is_503(stored: RunningEdge, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*_: object) -> None:
        raise Unavailable("the disk is gone")

    monkeypatch.setattr(stored.store, "conversations", unavailable)
    answer = get(stored, "/v1/conversations")
    assert answer.status_code == 503
    assert "disk" not in answer.text


@pytest.mark.parametrize("path", ["/v1/export", "/v1/conversations/c1/export"])
def test_an_export_of_messages_that_cannot_be_read_is_503(
    stored: RunningEdge, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    def unavailable(*_: object) -> None:
        raise Unavailable("the disk is gone")

    monkeypatch.setattr(stored.store, "messages", unavailable)
    assert get(stored, path).status_code == 503


def test_a_page_before_a_message_that_is_not_there_is_400(stored: RunningEdge) -> None:
    for before in ("zz", "", "u-c2-2", "u-theirs-100"):
        answer = get(stored, "/v1/conversations/c1", before=before)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "before"), before
    assert get(stored, "/v1/conversations/c1", before="u-c1-1")["messages"] == []
    assert get(stored, "/v1/conversations/theirs", before="u-theirs-100").status_code == 404


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[RunningEdge]:
    """Alice has `c1` and `c2`, Bob has `theirs`."""
    with RunningEdge(tmp_path, accept_timeout=1.0) as edge:
        edge.store.save([saved("c1", 1), saved("c2", 2), saved("theirs", 3, "bob")])
        yield edge


def titles(edge: RunningEdge) -> dict[str, str]:
    return {line["id"]: line["title"] for line in get(edge, "/v1/conversations")["conversations"]}


def test_a_renamed_conversation_is_listed_under_its_name_once_that_is_answered(mine: RunningEdge) -> None:
    answer = ask(mine, "PATCH", "/v1/conversations/c1", json={"title": " To Rome  "})
    assert (answer.status_code, answer.json()["title"]) == (200, "To Rome")
    assert titles(mine) == {"c2": "text 2", "c1": "To Rome"}
    assert get(mine, "/v1/conversations/c1")["title"] == "To Rome"
    assert mine.changes == [ConversationRenamed(UserId("alice"), ConversationId("c1"), "To Rome")]


def test_a_deleted_conversation_is_gone_once_that_is_answered_and_may_be_begun_again(mine: RunningEdge) -> None:
    answer = ask(mine, "DELETE", "/v1/conversations/c1")
    assert (answer.status_code, answer.content) == (204, b"")
    assert titles(mine) == {"c2": "text 2"}
    assert get(mine, "/v1/conversations/c1").status_code == 404
    assert ask(mine, "DELETE", "/v1/conversations/c1").status_code == 404
    assert mine.changes == [ConversationDeleted(UserId("alice"), ConversationId("c1"))]
    mine.store.save([saved("c1", 1), saved("c1", again := time.time_ns() // 1_000_000 + 1)])
    assert titles(mine) == {"c1": f"text {again}", "c2": "text 2"}


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_an_unknown_and_a_foreign_conversation_cannot_be_changed_and_look_alike(
    stored: RunningEdge, method: str
) -> None:
    answers = [ask(stored, method, f"/v1/conversations/{c}", json={"title": "x"}) for c in ("nowhere", "theirs")]
    assert {answer.status_code for answer in answers} == {404}
    assert answers[0].text.replace("nowhere", "theirs") == answers[1].text
    assert stored.changes == []


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_one_that_may_not_be_saved_yet_is_not_said_to_be_unknown(tmp_path: Path, method: str) -> None:
    with RunningEdge(tmp_path, accept_timeout=0.2) as edge:
        place = Place(TURNS, Routes(SIZES).of_user(UserId("alice")))
        edge.log.producer().send(Append(place, b"", b"not saved yet"))
        answer = ask(edge, method, "/v1/conversations/c1", json={"title": "x"})
        assert (answer.status_code, edge.changes) == (503, [])
        edge.store.save([saved("c1", 1)])
        assert ask(edge, method, "/v1/conversations/c1", json={"title": "x"}).is_success


@pytest.mark.parametrize(
    "body",
    [{}, {"title": None}, {"title": 7}, {"title": " \t"}, {"title": "x" * 201}, {"title": "a\nb"}, {"title": "\x00"}],
)
def test_a_bad_title_is_400_and_named(stored: RunningEdge, body: dict[str, object]) -> None:
    answer = ask(stored, "PATCH", "/v1/conversations/c1", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "title")
    assert "1 to 200 characters" in answer.json()["error"]["message"]


def test_an_unknown_field_beside_the_title_is_400(stored: RunningEdge) -> None:
    answer = ask(stored, "PATCH", "/v1/conversations/c1", json={"title": "x", "colour": "red"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "colour")
    assert stored.changes == []


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_a_change_that_the_store_does_not_show_in_time_is_503_and_may_be_sent_again(
    mine: RunningEdge, method: str
) -> None:
    mine.carries_out = False
    answer = ask(mine, method, "/v1/conversations/c1", json={"title": "x"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    mine.carries_out = True
    assert ask(mine, method, "/v1/conversations/c1", json={"title": "x"}).is_success
    assert len(mine.changes) == 2


def test_an_export_has_all_messages_oldest_first_and_only_ones_own(stored: RunningEdge) -> None:
    with stored.client() as client:
        answer = client.get("/v1/export")
        one = client.get("/v1/conversations/c1/export")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="conversations.json"'
    exported = answer.json()["conversations"]
    assert {line["id"]: [message["text"] for message in line["messages"]] for line in exported} == {
        f"c{c}": [f"text {n}" for n in range(c, 9, 3)] for c in range(3)
    }
    assert one.json()["conversations"] == [line for line in exported if line["id"] == "c1"]


def test_nobody_exports_what_is_not_theirs(stored: RunningEdge) -> None:
    assert ask(stored, "GET", "/v1/conversations/theirs/export").status_code == 404
    assert ask(stored, "GET", "/v1/export", key="").status_code == 401
