"""API keys come from a file that may change while the edge runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edge.auth import BadKeys, Keys, read_keys
from edge.errors import Unauthorized
from tests.unit.edge.running_edge import write_keys


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def changed(path: Path, text: str) -> None:
    before = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(before + 1, before + 1))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_keys(tmp_path / "keys.json", {"k1": "alice"})
    return tmp_path / "keys.json"


def test_a_key_names_its_holder(path: Path) -> None:
    caller = Keys(path).caller("Bearer k1")
    assert (caller.user, caller.account, caller.plan) == ("alice", "alice", "free")
    assert Keys(path).caller("bearer  k1 ") == caller


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic k1", "k1", "Bearer k2", "Bearer k1x", "Bearer \xff"]
)
def test_no_key_and_a_wrong_key_are_refused(path: Path, header: str | None) -> None:
    with pytest.raises(Unauthorized):
        Keys(path).caller(header)


def test_a_changed_file_is_read_again_after_a_second(path: Path, tmp_path: Path) -> None:
    clock = Clock()
    keys = Keys(path, clock)
    write_keys(tmp_path / "new.json", {"k2": "bob"})
    changed(path, (tmp_path / "new.json").read_text())
    assert keys.caller("Bearer k1").user == "alice"
    clock.now = 1.0
    assert keys.caller("Bearer k2").user == "bob"
    with pytest.raises(Unauthorized):
        keys.caller("Bearer k1")


@pytest.mark.parametrize("text", ["", "{", '{"keys": 5}', '{"keys": [{"sha256": "x"}]}'])
def test_a_broken_file_keeps_the_old_keys(path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    keys = Keys(path, clock)
    changed(path, text)
    clock.now = 2.0
    assert keys.caller("Bearer k1").user == "alice"
    assert "the old keys stay" in caplog.text


def test_a_file_that_vanishes_keeps_the_old_keys(path: Path) -> None:
    clock = Clock()
    keys = Keys(path, clock)
    path.unlink()
    clock.now = 2.0
    assert keys.caller("Bearer k1").user == "alice"


def test_a_file_with_an_empty_user_is_no_keys_file() -> None:
    with pytest.raises(BadKeys):
        read_keys(b'{"keys": [{"sha256": "aa", "user": "", "account": "a", "plan": "free"}]}')
