"""What the store on Cassandra decides before it asks the cluster anything."""

from __future__ import annotations

import pytest
from cassandra import AuthenticationFailed, InvalidRequest, OperationTimedOut
from cassandra.cluster import NoHostAvailable
from hypothesis import given
from hypothesis import strategies as st

from topics.store.cassandra_changes import BATCH_BYTES, ROW_BYTES, Microseconds, days_of, in_batches
from topics.store.cassandra_session import said


@given(sizes=st.lists(st.integers(0, 2 * BATCH_BYTES), max_size=30))
def test_writes_stay_in_order_and_only_one_alone_is_larger_than_a_batch(sizes: list[int]) -> None:
    calls = [("statement", (n, b"x" * size)) for n, size in enumerate(sizes)]
    batches = list(in_batches(calls))
    assert [call for batch in batches for call in batch] == calls
    for batch in batches:
        size = sum(ROW_BYTES + len(record) for _, (_, record) in batch if isinstance(record, bytes))
        assert len(batch) == 1 or size <= BATCH_BYTES


def test_replies_of_some_days_lie_together_and_no_id_is_refused() -> None:
    minute, month = 60_000, 30 * 86_400_000
    ids = [f"r00000-{at_ms:012x}{7:020x}-00000000" for at_ms in (10**12, 10**12 + minute, 10**12 + month)]
    places = [days_of(reply) for reply in ids]
    assert places[0] == places[1] != places[2]
    assert days_of("r-1") == ""


def test_no_two_lines_are_written_at_one_moment() -> None:
    clock = Microseconds()
    moments = [clock.now() for _ in range(1_000)]
    assert moments == sorted(set(moments))


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (NoHostAvailable("none", {"a": ConnectionRefusedError(111, "refused")}), "is Cassandra up"),
        (NoHostAvailable("none", {"a": AuthenticationFailed("bad credentials")}), "LANEWAY_CASSANDRA_PASSWORD"),
        (NoHostAvailable("using keyspace 'k'", ["a"]), "laneway store migrate"),
        (InvalidRequest("unconfigured table"), "laneway store migrate"),
        (OperationTimedOut(), "no answer in"),
    ],
)
def test_an_error_of_the_driver_says_what_to_do(error: Exception, advice: str) -> None:
    assert advice in said(error) and "\n" not in said(error)
