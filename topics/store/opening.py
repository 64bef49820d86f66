"""The store that the settings name. Cassandra's driver is loaded only where it is used: it has an extra of its own."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any, cast

from topics.errors import Unavailable
from topics.store.config import StoreConfig
from topics.store.contract import Store
from topics.store.sqlite import SqliteStore
from topics.telemetry.logs import about

DAY_MS = 86_400_000

logger = logging.getLogger(__name__)


def open_store(config: StoreConfig, *, at_once: bool = False) -> Store:
    """Raises Unavailable for a path that can be no file. What is wrong with a file else, or with a cluster, is
    told by each call until it is mended: who needs no store at the moment goes on without. `at_once`: what is wrong
    with a file is told now.
    """
    if config.is_cassandra:
        from topics.store.cassandra import CassandraStore

        return CassandraStore(config)
    if not Path(config.store).parent.is_dir() or Path(config.store).is_dir():
        raise Unavailable(f"{config.store}: expected a file in a folder that is there")
    try:
        return _opened(config)
    except Unavailable as error:
        if at_once:
            raise
        logger.error("the store cannot be opened", extra=about(error=error))
        return cast(Store, _OpenedLater(config))


def _opened(config: StoreConfig) -> SqliteStore:
    return SqliteStore(Path(config.store), config.keep_days * DAY_MS)


class _OpenedLater:
    """Tries to open the file with each call. Raises Unavailable as long as it cannot."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._store: SqliteStore | None = None

    def __getattr__(self, method: str) -> Any:
        with self._lock:
            self._store = self._store or _opened(self._config)
        return getattr(self._store, method)

    def close(self) -> None:
        if self._store:
            self._store.close()
