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


def whole(recent: Recent, reply: ReplyId) -> list[Record] | None:
    return recent.of(source(reply)) if recent.has_all(reply) else None


def test_a_reply_that_may_have_begun_before_the_keeping_did_is_not_whole() -> None:
    old, new = minted(1, NOW_MS + CLOCK_SLACK_MS), minted(2, LATER_MS)
    recent, records = Recent(7), [record(7, old, NOW_MS), record(8, new, LATER_MS), record(9, new, LATER_MS)]
    assert not recent.has_all(new)
    add(recent, *records)
    assert whole(recent, old) is None
    assert whole(recent, new) == records[1:]
    assert whole(recent, minted(3, LATER_MS)) == []


def test_what_lies_before_is_known_by_its_first_record_or_by_a_bound_on_its_time() -> None:
    reply = minted(1, NOW_MS)
    assert Recent(0, before_ms=0).has_all(reply)
    assert Recent(7, NOW_MS - CLOCK_SLACK_MS - 1).has_all(reply)
    assert not Recent(7, NOW_MS - CLOCK_SLACK_MS).has_all(reply)


def test_what_was_read_of_the_past_joins_what_came_live() -> None:
    old, other = minted(1, NOW_MS), minted(2, NOW_MS - 1)
    records = [record(offset, old, NOW_MS) for offset in range(4)]
    recent = Recent(2)
    add(recent, *records[2:])
    recent.add_older(records[:2], 2, NOW_MS)
    assert (whole(recent, old), recent.size, recent.begin) == (records, 4 * (LINE_BYTES + 1), 0)
    assert not recent.has_all(other)


def test_a_past_that_ends_before_what_is_left_is_of_no_use() -> None:
    reply = minted(1, NOW_MS)
    records = [record(offset, reply, NOW_MS) for offset in range(4)]
    recent = Recent(2)
    add(recent, *records[2:])
    recent.shrink(LINE_BYTES + 1)
    recent.add_older(records[:2], 2, NOW_MS)
    assert (recent.begin, whole(recent, reply)) == (3, None)


WRITES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2 * CLOCK_SLACK_MS), st.integers(1, 400)), max_size=60)


@given(writes=WRITES, before=st.integers(0, 20), keeps=st.integers(1, 12))
def test_within_its_bound_a_reply_is_whole_or_not_said_to_be(
    writes: list[tuple[int, int, int]], before: int, keeps: int
) -> None:
    recent, now_ms, replies = Recent(before), NOW_MS, dict[int, ReplyId]()
    written, offsets = defaultdict[ReplyId, list[Record]](list), count()
    for n, (which, passed_ms, size) in enumerate(writes):
        now_ms += passed_ms
        its_clock_ms = now_ms + which * CLOCK_SLACK_MS // 5
        reply = replies.setdefault(which, minted(which, its_clock_ms))
        written[reply].append(record(next(offsets), reply, now_ms, size))
        if n >= before:
            add(recent, written[reply][-1])
        if n == before + 5:
            read = sorted((one for records in written.values() for one in records), key=lambda one: one.offset)
            recent.add_older(read, n, NOW_MS)
        recent.shrink(keeps * (LINE_BYTES + 300))
        assert all(whole(recent, one) in (None, records) for one, records in written.items())
        assert recent.size <= keeps * (LINE_BYTES + 300)
