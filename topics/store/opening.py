"""The store that the settings name. Cassandra's driver is loaded only where it is used: it has an extra of its own."""

from __future__ import annotations

from pathlib import Path

from topics.store.config import StoreConfig
from topics.store.contract import Store
from topics.store.sqlite import SqliteStore

DAY_MS = 86_400_000


def open_store(config: StoreConfig) -> Store:
    """Raises Unavailable for a file that cannot be used; a cluster is asked only when something is."""
    if not config.is_cassandra:
        return SqliteStore(Path(config.store), config.keep_days * DAY_MS)
    from topics.store.cassandra import CassandraStore

    return CassandraStore(config)
