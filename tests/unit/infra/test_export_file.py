"""The file that `laneway export` writes: there once it is whole, and said in words when it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from infra.commands.store import writing


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
