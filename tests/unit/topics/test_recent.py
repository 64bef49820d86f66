"""What a tail keeps of the log: a reply is given whole or not at all, within a bound on bytes."""

from __future__ import annotations

from collections import defaultdict
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import ReplyId
from topics.catalog import REPLIES
from topics.log import Place, Record
from topics.recent import CLOCK_SLACK_MS, LINE_BYTES, Recent
from topics.subscription import Source

PLACE = Place(REPLIES, 0)
NOW_MS = 1_800_000_000_000
LATER_MS = NOW_MS + 2 * CLOCK_SLACK_MS


def minted(n: int, created_ms: int) -> ReplyId:
    return ReplyId(f"r00000-{created_ms:012x}{n:020x}-00000000")


def source(reply: ReplyId) -> Source:
    return PLACE, reply.encode() + b"/"


def record(offset: int, reply: ReplyId, timestamp_ms: int, size: int = 1) -> Record:
    return Record(PLACE, offset, timestamp_ms, f"{reply}/w/0".encode(), b"x" * size)


def add(recent: Recent, *records: Record) -> None:
    for one in records:
        recent.add(one)


def test_a_reply_that_may_have_begun_before_the_keeping_did_is_not_given() -> None:
    old, new = minted(1, NOW_MS + CLOCK_SLACK_MS), minted(2, LATER_MS)
    recent, records = Recent(), [record(7, old, NOW_MS), record(8, new, LATER_MS), record(9, new, LATER_MS)]
    assert recent.of(new, source(new)) is None
    add(recent, *records)
    assert recent.of(old, source(old)) is None
    assert recent.of(new, source(new)) == records[1:]
    unknown = minted(3, LATER_MS)
    assert recent.of(unknown, source(unknown)) == []


def test_what_was_read_of_the_past_joins_what_came_live() -> None:
    old, other = minted(1, NOW_MS), minted(2, NOW_MS - 1)
    records = [record(offset, old, NOW_MS) for offset in range(4)]
    recent = Recent()
    add(recent, *records[2:])
    recent.add_older(records[:3], 3, NOW_MS)
    assert (recent.of(old, source(old)), recent.size) == (records, 4 * (LINE_BYTES + 1))
    assert recent.of(other, source(other)) is None


def test_nothing_that_was_kept_before_a_gap_is_given() -> None:
    reply = minted(1, LATER_MS)
    recent, records = Recent(), [record(offset, reply, NOW_MS if offset == 0 else LATER_MS) for offset in range(4)]
    add(recent, *records[:3])
    recent.forget()
    assert recent.of(reply, source(reply)) is None
    add(recent, records[3])
    assert recent.of(reply, source(reply)) is None
    assert recent.size == LINE_BYTES + 1


WRITES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2 * CLOCK_SLACK_MS), st.integers(1, 400)), max_size=60)


@given(writes=WRITES, before=st.integers(0, 20), keeps=st.integers(1, 12))
def test_within_its_bound_a_reply_is_given_whole_or_not_at_all(
    writes: list[tuple[int, int, int]], before: int, keeps: int
) -> None:
    recent, now_ms, replies = Recent(), NOW_MS, dict[int, ReplyId]()
    whole, offsets = defaultdict[ReplyId, list[Record]](list), count()
    for n, (which, passed_ms, size) in enumerate(writes):
        now_ms += passed_ms
        its_clock_ms = now_ms + which * CLOCK_SLACK_MS // 5
        reply = replies.setdefault(which, minted(which, its_clock_ms))
        whole[reply].append(record(next(offsets), reply, now_ms, size))
        if n >= before:
            add(recent, whole[reply][-1])
        if n == before + 5:
            read = sorted((one for records in whole.values() for one in records), key=lambda one: one.offset)
            recent.add_older(read, n + 1, NOW_MS)
        recent.shrink(keeps * (LINE_BYTES + 300))
        assert all(recent.of(one, source(one)) in (None, records) for one, records in whole.items())
        assert recent.size <= keeps * (LINE_BYTES + 300)
