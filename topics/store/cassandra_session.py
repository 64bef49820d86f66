"""One session with a Cassandra cluster, opened when it is first needed and shared by all threads of a process.

In: statements and values. Out: rows. Whatever goes wrong leaves here as Unavailable, which says what to do. Every
statement may be run again (see `cassandra_schema.py`), so timeouts are retried, once; after a failure all calls fail at
once for PAUSE_S, so that nobody queues up behind a cluster that is down.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    DriverException,
    OperationTimedOut,
    ProtocolVersion,
    RequestExecutionException,
    RequestValidationException,
    UnresolvableContactPoints,
)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.concurrent import execute_concurrent
from cassandra.policies import (
    ConstantReconnectionPolicy,
    DCAwareRoundRobinPolicy,
    RetryPolicy,
    TokenAwarePolicy,
)
from cassandra.query import BatchStatement, BatchType, PreparedStatement

from topics.errors import Unavailable
from topics.store.config import StoreConfig

CONNECT_S = 3.0
REQUEST_S = 5.0
PAUSE_S = 1.0
AT_ONCE = 64
PAGE = 500

# What may pass by itself: all calls are spared for a moment then. A statement that is refused is the caller's business.
PASSING = (RequestExecutionException, OperationTimedOut, NoHostAvailable, UnresolvableContactPoints, OSError)

MIGRATE = "`laneway store migrate` makes the keyspace and its tables"
ADVICE: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
    (AuthenticationFailed, "LANEWAY_CASSANDRA_USERNAME and LANEWAY_CASSANDRA_PASSWORD must be a user's there"),
    (RequestValidationException, MIGRATE),
    (OperationTimedOut, f"no answer in {REQUEST_S:g} s: the cluster is overloaded or stands still"),
    (RequestExecutionException, "not enough replicas answer: look at `nodetool status`"),
    ((NoHostAvailable, OSError), "no node answers there: is Cassandra up, and the address right?"),
)

logging.getLogger("cassandra").setLevel(logging.CRITICAL)  # what it would say is said by Unavailable, once


class RetryOnce(RetryPolicy):  # type: ignore[misc]
    """Whatever was not answered is asked once more, of another host if there is one."""

    def on_read_timeout(self, query: Any, consistency: Any, retry_num: int, **_: Any) -> Any:
        return (self.RETRY_NEXT_HOST, consistency) if retry_num == 0 else (self.RETHROW, None)

    on_write_timeout = on_unavailable = on_request_error = on_read_timeout


class CassandraSession:
    """`check` is called with this session after each time it was opened; it may raise Unavailable."""

    def __init__(self, config: StoreConfig, check: Callable[[CassandraSession], None], keyspace: bool = True) -> None:
        self._config, self._check = config, check
        self._hosts, name = config.cluster()
        self._keyspace = name if keyspace else None
        self._checked = False
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._session: Session | None = None
        self._prepared: dict[str, PreparedStatement] = {}
        self._failed_at, self._failure = -PAUSE_S, ""

    def rows(self, statement: str, *values: object, page: int = PAGE) -> Iterator[tuple[Any, ...]]:
        """The rows of one statement, fetched page by page as they are taken."""
        with self._errors():
            bound = self._bind(statement, values)
            bound.fetch_size = page
            yield from self._session_now().execute(bound)

    def first(self, statement: str, *values: object) -> tuple[Any, ...] | None:
        return next(self.rows(statement, *values), None)

    def each(self, calls: Sequence[tuple[str, Sequence[object]]]) -> list[list[tuple[Any, ...]]]:
        """The rows of each of many statements, which run at the same time. All have been done when it returns."""
        if not calls:
            return []
        with self._errors():
            bound = [(self._bind(statement, values), None) for statement, values in calls]
            done = execute_concurrent(self._session_now(), bound, concurrency=AT_ONCE, raise_on_first_error=True)
            return [list(result) for _, result in done]

    def write(self, groups: Iterable[Sequence[tuple[str, Sequence[object]]]]) -> None:
        """Each group is of one partition, and done as one write; the groups run at the same time."""
        with self._errors():
            statements = [(self._together(group), None) for group in groups if group]
            if statements:
                execute_concurrent(self._session_now(), statements, concurrency=AT_ONCE, raise_on_first_error=True)

    def _together(self, group: Sequence[tuple[str, Sequence[object]]]) -> Any:
        bound = [self._bind(statement, values) for statement, values in group]
        if len(bound) == 1:
            return bound[0]
        batch = BatchStatement(BatchType.UNLOGGED)
        batch.is_idempotent = True
        for one in bound:
            batch.add(one)
        return batch

    def run(self, statements: Iterable[str]) -> None:
        """Statements without values, such as those that change a schema, one after the other."""
        with self._errors():
            session = self._session_now()
            for statement in statements:
                session.execute(statement, timeout=10 * REQUEST_S)

    def close(self) -> None:
        with self._lock:
            self._forget()

    def _bind(self, statement: str, values: Sequence[object]) -> Any:
        session = self._session_now()
        prepared = self._prepared.get(statement)
        if prepared is None:
            prepared = session.prepare(statement)
            prepared.is_idempotent = True
            self._prepared[statement] = prepared
        return prepared.bind(values)

    def _session_now(self) -> Session:
        """Raises Unavailable at once for a while after it could not be had."""
        self._spare()
        with self._lock:
            if self._session is None:
                self._spare()  # who waited for the lock may have waited for a failure
                self._open()
            session = self._session
        if not self._checked:
            self._checked = True
            try:
                self._check(self)
            except BaseException:
                self._checked = False
                raise
        return session

    def _spare(self) -> None:
        if time.monotonic() - self._failed_at < PAUSE_S:
            raise Unavailable(self._failure)

    def _failed(self, error: Exception) -> None:
        self._failure = f"{self._config.store}: {said(error)}"
        if isinstance(error, PASSING):
            self._failed_at = time.monotonic()

    def _open(self) -> None:
        self._cluster = Cluster(
            contact_points=self._hosts,
            protocol_version=ProtocolVersion.V5,
            auth_provider=self._login(),
            ssl_context=ssl.create_default_context(cafile=self._config.ca) if self._config.ca else None,
            execution_profiles={EXEC_PROFILE_DEFAULT: self._profile()},
            reconnection_policy=ConstantReconnectionPolicy(PAUSE_S, max_attempts=None),
            connect_timeout=CONNECT_S,
            control_connection_timeout=REQUEST_S,
            idle_heartbeat_interval=2,
            idle_heartbeat_timeout=4,
        )
        try:
            self._session = self._cluster.connect(self._keyspace)
        except BaseException as error:
            if isinstance(error, Exception):
                self._failed(error)
            self._forget()
            raise

    def _profile(self) -> ExecutionProfile:
        """The nearest replica of the partition, a quorum of its datacenter."""
        return ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(self._config.datacenter)),
            retry_policy=RetryOnce(),
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
            request_timeout=REQUEST_S,
            row_factory=tuple_rows,
        )

    def _login(self) -> PlainTextAuthProvider | None:
        config = self._config
        return PlainTextAuthProvider(config.username, config.password) if config.username else None

    def _forget(self) -> None:
        if self._cluster is not None:
            self._cluster.shutdown()
        self._cluster = self._session = None
        self._prepared = {}

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (DriverException, NoHostAvailable, OSError) as error:
            self._failed(error)
            raise Unavailable(self._failure) from error


def tuple_rows(_: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return list(rows)


def said(error: Exception) -> str:
    """The driver's error in one line, and what to do about it."""
    errors = error.errors if isinstance(error, NoHostAvailable) else {}
    if not isinstance(errors, dict):  # so it says that the nodes were reached, and the keyspace was not
        return f"there is no such keyspace ({MIGRATE})"
    causes = list(errors.values())
    why = " ".join(str(causes[0] if causes else error).split())
    for kinds, advice in ADVICE:
        if any(isinstance(one, kinds) for one in (error, *causes)):
            return f"{why or type(error).__name__} ({advice})"
    return why or type(error).__name__
