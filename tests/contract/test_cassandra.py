"""What only the store on Cassandra can get wrong: a cluster that is not there, tables of another version, time."""

from __future__ import annotations

import dataclasses
import time
from contextlib import closing

import pytest

from infra.local.cassandra import ONE_COPY
from infra.local.ports import free_ports
from tests.contract.test_store import ADA, C1, exchange, exchanges, names, renamed
from topics.errors import Unavailable
from topics.store import cassandra_schema as cql
from topics.store.cassandra import CassandraStore, migrate
from topics.store.cassandra_changes import Line
from topics.store.config import StoreConfig

pytestmark = pytest.mark.usefixtures("cassandra")


def test_a_cluster_that_is_not_there_is_unavailable_and_says_so_at_once_the_second_time() -> None:
    [port] = free_ports(1)
    with closing(CassandraStore(StoreConfig(store=f"cassandra://127.0.0.1:{port}/laneway"))) as store:
        for _ in range(2):
            with pytest.raises(Unavailable, match=rf"127.0.0.1:{port}/laneway: .*is Cassandra up"):
                store.messages(ADA, C1, 10)


def test_a_keyspace_that_nobody_made_is_named_with_the_command_that_makes_it(keyspace: StoreConfig) -> None:
    absent = dataclasses.replace(keyspace, store=keyspace.store.replace("contract", "absent"))
    with closing(CassandraStore(absent)) as store, pytest.raises(Unavailable, match=r"absent.*laneway store migrate"):
        store.identity()


def test_tables_are_made_once_and_those_of_a_newer_version_are_refused(keyspace: StoreConfig) -> None:
    newer = dataclasses.replace(keyspace, store=keyspace.store.replace("contract", "newer"))
    now = len(cql.STEPS)
    assert [migrate(newer, ONE_COPY), migrate(newer, ONE_COPY)] == [(0, now), (now, now)]
    with closing(CassandraStore(newer)) as store:
        assert store.identity() == store.identity()
        store._session.each([(cql.SET_VERSION, (now + 1,))])
    with closing(CassandraStore(newer)) as store, pytest.raises(Unavailable, match=f"version {now + 1}.*newer Laneway"):
        store.identity()


def test_what_is_kept_for_some_days_goes_by_itself(keyspace: StoreConfig, on_cassandra: CassandraStore) -> None:
    until_ms = 100 + 86_400_000  # the first exchange is posted at 100 and kept for a day
    with closing(CassandraStore(dataclasses.replace(keyspace, keep_days=1), lambda: until_ms - 2_000)) as store:
        store.save(exchanges(1))
    deadline = time.monotonic() + 60
    while on_cassandra.messages(ADA, C1, 10) or on_cassandra.conversations(ADA, 10):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with closing(CassandraStore(dataclasses.replace(keyspace, keep_days=1), lambda: until_ms)) as store:
        store.save([*exchange(0), *exchange(9_000)])
    assert names(on_cassandra.messages(ADA, C1, 10)) == ["u-9000", "a-9000"]


def test_a_name_is_kept_as_long_as_the_newest_message(keyspace: StoreConfig, on_cassandra: CassandraStore) -> None:
    def left_s() -> int:
        [[row]] = on_cassandra._session.each(
            [("SELECT TTL(title) FROM names WHERE user = ? AND conversation = ?", (ADA, C1))]
        )
        return int(row[0])

    with closing(CassandraStore(dataclasses.replace(keyspace, keep_days=1), lambda: 2_000)) as store:
        store.save([*exchanges(1), renamed("a name", 50, 1)])
    assert 0 < left_s() <= 86_400
    with closing(CassandraStore(dataclasses.replace(keyspace, keep_days=2), lambda: 2_000)) as store:
        store.save(exchange(1))
    assert 86_400 < left_s() <= 2 * 86_400
    assert on_cassandra.conversations(ADA, 10)[0].title == "a name"


def test_a_writer_that_was_held_up_puts_no_older_line_over_a_newer(on_cassandra: CassandraStore) -> None:
    on_cassandra.save(exchange(0))
    session = on_cassandra._session
    [held] = session.each([(cql.LINE, (ADA, C1))])[0]
    at_us = time.time_ns() // 1000
    on_cassandra.save(exchange(1))
    line = Line.of(held)
    session.each([(cql.SET_LINE, (at_us, 0, line.created_ms, line.updated_ms, 2, line.title, ADA, C1))])
    assert on_cassandra.conversations(ADA, 10)[0].count == 4


def test_a_place_in_the_list_that_its_line_does_not_confirm_is_passed_over(on_cassandra: CassandraStore) -> None:
    on_cassandra.save(exchanges(3))
    on_cassandra._session.each([(cql.ADD_RECENT, (ADA, n, C1, 10**16 + n, 0)) for n in (1, 500, 9_999)])
    assert [line.updated_ms for line in on_cassandra.conversations(ADA, 2)] == [2500]
