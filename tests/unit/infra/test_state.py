from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from infra.local.errors import AlreadyRunning, NothingRuns
from infra.local.state import DataFolder, Up
from infra.local.supervisor import Row

ROW = Row("stages", 7, 1.5, "ready", 0, "/data/logs/stages.log")


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path)


def running() -> Up:
    up = Up.of_this_process(("http://127.0.0.1:8701",), "lw-key", "127.0.0.1:9092")
    return replace(up, processes=(ROW,))


def test_what_is_written_is_read_back(folder: DataFolder) -> None:
    folder.write(running())
    assert folder.running() == running()
    assert folder.state_file.stat().st_mode & 0o777 == 0o600


def test_a_pid_that_was_used_again_is_not_the_stack(folder: DataFolder) -> None:
    up = running()
    folder.write(replace(up, created=(up.created or 0) - 3600))
    with pytest.raises(NothingRuns, match="laneway up"):
        folder.running()


def test_a_second_holder_is_told_what_runs(folder: DataFolder) -> None:
    with folder.lock():
        folder.write(running())
        with pytest.raises(AlreadyRunning, match=r"http://127\.0\.0\.1:8701"):
            folder.lock()
    folder.lock().close()


def test_a_reset_keeps_what_was_downloaded_unless_all_goes(folder: DataFolder) -> None:
    for name in ("up.lock", "demo.key", "models/m", "kafka/jars/k", "kafka/records/r"):
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / name).touch()
    assert {path.name for path in folder.disposable(everything=False)} == {"demo.key", "records"}
    assert {path.name for path in folder.disposable(everything=True)} == {"demo.key", "models", "kafka"}
