"""Settings of the conversation store: which one, where, and for how long it keeps what was said."""

from __future__ import annotations

import re
from dataclasses import dataclass

from schemas.settings import SettingError, setting

SCHEME = "cassandra://"
PORT = 9042
_CLUSTER = re.compile(r"cassandra://([^/,\s]+(?:,[^/,\s]+)*)/([A-Za-z]\w{0,47})")
_HOST = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:]+)(?::(\d{1,5}))?")


@dataclass(frozen=True)
class StoreConfig:
    store: str = setting(
        "LANEWAY_STORE",
        default=".laneway/store.sqlite",
        doc="the conversation store: a file, or cassandra://host:port,host:port/keyspace",
    )
    keep_days: int = setting("LANEWAY_STORE_DAYS", default=0, doc="days that the store keeps a turn; 0: for ever")
    datacenter: str = setting(
        "LANEWAY_CASSANDRA_DATACENTER", default="", doc="Cassandra's local datacenter; default that of the first host"
    )
    username: str = setting("LANEWAY_CASSANDRA_USERNAME", default="", doc="user name at Cassandra")
    password: str = setting("LANEWAY_CASSANDRA_PASSWORD", default="", doc="password at Cassandra", secret=True)
    ca: str = setting(
        "LANEWAY_CASSANDRA_CA", default="", doc="file of the CA that signed Cassandra's certificates; without it no TLS"
    )

    def __post_init__(self) -> None:
        if self.keep_days < 0 or self.keep_days > 7300:
            raise SettingError(f"LANEWAY_STORE_DAYS={self.keep_days}: expected an integer from 0 to 7300")
        if self.store in ("", "sqlite", "cassandra"):  # words of `laneway up`, which start what no other process does
            raise SettingError(f"LANEWAY_STORE={self.store!r}: expected a file, or cassandra://host:port/keyspace")
        if self.is_cassandra:
            self.cluster()

    @property
    def is_cassandra(self) -> bool:
        return self.store.startswith(SCHEME)

    def cluster(self) -> tuple[tuple[tuple[str, int], ...], str]:
        """The hosts with their ports, and the keyspace. Raises SettingError."""
        found = _CLUSTER.fullmatch(self.store)
        hosts = [_HOST.fullmatch(host) for host in found[1].split(",")] if found else []
        if not found or not all(hosts):
            raise SettingError(f"LANEWAY_STORE={self.store!r}: expected cassandra://host:port,host:port/keyspace")
        return tuple((host[1].strip("[]"), int(host[2] or PORT)) for host in hosts if host), found[2]
