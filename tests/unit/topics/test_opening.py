"""A store that cannot be opened costs those who ask it, and nobody else; it is opened once it can be."""

from contextlib import closing
from pathlib import Path

import pytest

from topics.errors import Unavailable
from topics.store.config import StoreConfig
from topics.store.opening import open_store


def test_a_damaged_file_says_so_with_each_call_until_it_is_moved_away(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"no database" * 1000)
    with closing(open_store(StoreConfig(store=str(path)))) as store:
        for _ in range(2):
            with pytest.raises(Unavailable, match="move it away"):
                store.identity()
        path.rename(tmp_path / "damaged.db")
        assert store.identity()


def test_who_wants_it_at_once_is_told_at_once_and_nothing_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(Unavailable, match="move it away"):
        open_store(StoreConfig(store=str(path)), at_once=True)
    assert caplog.records == []


@pytest.mark.parametrize("path", ["no-folder/store.db", "."])
def test_what_can_be_no_file_is_refused_at_once(tmp_path: Path, path: str) -> None:
    with pytest.raises(Unavailable, match="expected a file in a folder that is there"):
        open_store(StoreConfig(store=str(tmp_path / path)))
