from __future__ import annotations

import httpx
import pytest

from infra.chat import ChatError, checked, ended, instead


def test_a_refusal_shows_the_servers_message() -> None:
    answer = httpx.Response(429, json={"error": {"message": "the token quota is used up"}})
    with pytest.raises(ChatError, match=r"the token quota is used up \(HTTP 429\)"):
        checked(answer)


def test_an_answer_that_is_not_json_is_a_refusal_too() -> None:
    with pytest.raises(ChatError, match="HTTP 502"):
        checked(httpx.Response(502, text="<html>"))


@pytest.mark.parametrize("how", ["failed", "shed"])
def test_an_end_without_a_whole_reply_is_an_error_with_its_reason(how: str) -> None:
    with pytest.raises(ChatError, match="deadline"):
        ended(how, {"reason": "deadline"})
    assert ended("finished", {}) == "finished"


def test_who_is_answered_by_another_model_is_told() -> None:
    assert instead({"model": "mini", "asked_model": "large"}) == "the limit of large is reached: mini answers"
    assert instead({"model": "large"}) == ""
