"""Which store the settings name, and what is said of a name that is none."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from schemas.settings import SettingError, load
from topics.store.config import StoreConfig
from topics.store.opening import open_store
from topics.store.sqlite import SqliteStore


def test_a_path_is_the_embedded_store(tmp_path: Path) -> None:
    config = load(StoreConfig, {"LANEWAY_STORE": str(tmp_path / "a.sqlite")})
    with closing(open_store(config)) as store:
        assert isinstance(store, SqliteStore) and store.identity()


@pytest.mark.parametrize(
    ("text", "hosts", "keyspace"),
    [
        ("cassandra://one/k", (("one", 9042),), "k"),
        ("cassandra://one:1,10.0.0.2:2/laneway_1", (("one", 1), ("10.0.0.2", 2)), "laneway_1"),
        ("cassandra://[::1]:7/k", (("::1", 7),), "k"),
    ],
)
def test_a_cluster_has_hosts_and_a_keyspace(text: str, hosts: object, keyspace: str) -> None:
    assert load(StoreConfig, {"LANEWAY_STORE": text}).cluster() == (hosts, keyspace)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("LANEWAY_STORE", f"cassandra://{rest}") for rest in ("", "one", "one/", "one:x/k", "one/k-1", ",/k")),
        *(("LANEWAY_STORE", word) for word in ("", "sqlite", "cassandra")),
        ("LANEWAY_STORE_DAYS", "-1"),
    ],
)
def test_what_names_no_store_is_refused_with_its_value(key: str, value: str) -> None:
    with pytest.raises(SettingError, match=rf"{key}='?{value}'?: expected"):
        load(StoreConfig, {key: value})


def test_no_password_is_shown() -> None:
    config = load(StoreConfig, {"LANEWAY_STORE": "cassandra://one/k", "LANEWAY_CASSANDRA_PASSWORD": "hidden"})
    assert "hidden" not in repr(config)
