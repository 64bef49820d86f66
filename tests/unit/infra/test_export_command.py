"""What `laneway export` writes: a file once it is whole, nothing of a store that cannot be read, else why in words."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from infra.cli import app
from infra.commands.store import writing
from tests.unit.topics.test_sqlite_store import ADA, C1, question
from topics.errors import Unavailable
from topics.store.sqlite import SqliteStore


def no_database(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def unreadable_turns(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        store.save([question(1)])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE turns SET record = x'00'")


@pytest.mark.parametrize("damage", [no_database, unreadable_turns])
@pytest.mark.parametrize("options", [(), ("--conversation", C1), ("--output", "all.json")])
def test_of_a_store_that_cannot_be_read_nothing_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None],
    options: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    damage(Path("store.db"))
    done = CliRunner().invoke(app, ["export", ADA, *options], env={"LANEWAY_STORE": "store.db"})
    assert isinstance(done.exception, Unavailable)  # which `main` says in one line
    assert (done.output, caplog.records) == ("", [])
    assert not list(tmp_path.glob("all.json*"))


def test_a_file_is_there_only_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    with writing(str(path)) as write:
        write("half")
        assert not path.exists()
    assert path.read_text() == "half"


def test_a_file_that_cannot_be_written_is_named_as_it_was_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "nowhere" / "all.json")
    with pytest.raises(typer.Exit), writing(path):
        pass
    said = capsys.readouterr().err
    assert f"{path!r} cannot be written: No such file or directory" in said
    assert ".part" not in said


def test_of_a_file_that_cannot_become_whole_nothing_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(typer.Exit), writing(str(tmp_path / "folder")) as write:
        write("all")
    assert "cannot be written: Is a directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
