"""Records of a reply become frames: in order, once, and only what may be shown."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.view import ReplyView
from schemas import reply_records as r
from schemas.events import MessagePosted, Sampling
from schemas.ids import ConversationId, ReplyId, UserId
from schemas.reply import Record
from tests.unit.edge.running_edge import REPLICA, accepted, finished, started, tokens
from tests.unit.edge.test_frames import parsed, unhurried

REPLY = ReplyId("r00000-" + "0" * 32 + "-00000000")
POSTED = MessagePosted(
    UserId("u"), "a", "free", ConversationId("c"), REPLY, "k", "h", "hi", "m", Sampling(0), 600_000
)  # fmt: skip


def view_of(*records: Record) -> ReplyView:
    view = ReplyView(REPLY)
    for offset, record in enumerate(records):
        view.apply(offset, record)
    return view


def told(view: ReplyView, cursor: int | None = None) -> list[tuple[str, str]]:
    return [(event, n) for event, n, _ in parsed(b"".join(view.frames_after(cursor)))]


def test_a_reply_from_accepted_to_finished() -> None:
    view = view_of(accepted(POSTED), started(), tokens(1, "Hel", ""), tokens(3, "lo"), finished(3))
    assert told(view) == [
        ("accepted", "0"), ("queued", "0"), ("token", "1"), ("token", "2"), ("token", "3"), ("finished", "4"),
    ]  # fmt: skip
    end = orjson.loads(parsed(view.frames[-1])[0][2])
    assert end == {
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }


@unhurried
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_the_frames_after_any_cut_are_exactly_the_rest(sizes: list[int], data: st.DataObject) -> None:
    records: list[Record] = [accepted(POSTED), started()]
    count = 0
    for size in sizes:
        records.append(tokens(count + 1, *(f"t{n}" for n in range(size))))
        count += size
    view = view_of(*records, finished(count))
    cut = data.draw(st.integers(0, count + 1))
    seen = view.frames[: len(view.frames) - len(view.frames_after(cut))]
    assert parsed(b"".join(seen))[-1][1] == str(cut)
    assert seen + view.frames_after(cut) == view.frames


def test_a_repeat_makes_no_frame() -> None:
    once = view_of(accepted(POSTED), started(), tokens(1, "a"))
    again = view_of(accepted(POSTED), accepted(POSTED), started(), tokens(1, "a"), tokens(1, "a"))
    assert again.frames == once.frames


def test_a_preempted_and_a_resumed_reply_say_so_without_an_id() -> None:
    view = view_of(accepted(POSTED), started(), tokens(1, "a"), r.Preempted(1, REPLICA), r.AttemptOpened(2))
    assert [event for event, _ in told(view, 1)] == ["preempted", "resuming"]
    assert b"id:" not in b"".join(view.frames_after(1))


def test_a_token_has_its_log_probability_where_it_was_asked_for() -> None:
    likely = r.TokenLogprob(b"a", -0.5, (r.LikelyToken(b"b", -1.5),))
    view = view_of(accepted(POSTED), started(), replace(tokens(1, "a"), logprobs=(likely,)), tokens(2, "b"))
    with_it, without = (orjson.loads(data) for _, _, data in parsed(b"".join(view.frames_after(0)))[1:])
    assert with_it["logprobs"] == {
        "token": "a", "logprob": -0.5, "bytes": [97],
        "top_logprobs": [{"token": "b", "logprob": -1.5, "bytes": [98]}],
    }  # fmt: skip
    assert without == {"text": "b"}


def test_a_checked_reply_shows_only_what_is_cleared() -> None:
    records: list[Record] = [accepted(POSTED, checked=True), started(), tokens(1, "a", "b", "c")]
    assert view_of(*records).newest_id == 0
    assert told(view_of(*records, r.Cleared(2)), 0)[1:] == [("token", "1"), ("token", "2")]
    assert told(view_of(*records, r.Flagged(1, "violence")), 0)[1:] == [("token", "1"), ("flagged", "2")]


@pytest.mark.parametrize(
    ("record", "event", "data"),
    [
        (r.Stopped("user"), "stopped", {"reason": "user"}),
        (r.Failed("deadline"), "failed", {"reason": "deadline"}),
        (r.Shed("overload", 1500), "shed", {"reason": "overload", "retry_after": 2}),
    ],
)
def test_each_end_has_an_event_with_the_next_id(record: Record, event: str, data: dict[str, object]) -> None:
    [(kind, event_id, body)] = parsed(b"".join(view_of(accepted(POSTED), record).frames[-1:]))
    assert (kind, event_id) == (event, "1")
    assert orjson.loads(body).items() >= data.items()


@pytest.mark.parametrize("record", [r.Rejected("conflict"), r.Redirected(REPLY), tokens(1, "a"), finished(0)])
def test_a_reply_that_was_never_accepted_has_no_frames_and_no_owner(record: Record) -> None:
    view = view_of(record)
    assert (view.frames, view.owner, view.newest_id) == ([], None, -1)
