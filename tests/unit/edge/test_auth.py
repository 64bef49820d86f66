"""API keys come from a file that may change while the edge runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from edge.auth import KEY, BadKeys, Keys, read_keys
from edge.errors import Unauthorized
from tests.unit.edge.running_edge import write_keys


class Clock:
    def __init__(self, now: float = 0.0) -> None:
        self.now = now

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
    let_in = Keys(path).admit("k1")
    assert (let_in.caller.user, let_in.caller.account, let_in.caller.plan) == ("alice", "alice", "free")
    assert Keys(path).holder(let_in.credential) == let_in


@pytest.mark.parametrize("key", ["", "k2", "k1x", "K1", "\xff", "\udcff"])
def test_a_wrong_key_is_refused(path: Path, key: str) -> None:
    with pytest.raises(Unauthorized):
        Keys(path).admit(key)


def test_a_changed_file_is_read_again_after_a_second(path: Path, tmp_path: Path) -> None:
    clock = Clock()
    keys = Keys(path, clock)
    write_keys(tmp_path / "new.json", {"k2": "bob"})
    changed(path, (tmp_path / "new.json").read_text())
    assert keys.admit("k1").caller.user == "alice"
    clock.now = 1.0
    assert keys.admit("k2").caller.user == "bob"
    with pytest.raises(Unauthorized):
        keys.admit("k1")


@pytest.mark.parametrize("text", ["", "{", '{"keys": 5}', '{"keys": [{"sha256": "x"}]}', '{"keys": [5]}', "[]"])
def test_a_broken_file_keeps_the_old_keys(path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    keys = Keys(path, clock)
    changed(path, text)
    clock.now = 2.0
    assert keys.admit("k1").caller.user == "alice"
    assert "what it said before stays" in caplog.text


def test_a_file_that_vanishes_keeps_the_old_keys(path: Path) -> None:
    clock = Clock()
    keys = Keys(path, clock)
    path.unlink()
    clock.now = 2.0
    assert keys.admit("k1").caller.user == "alice"


def test_an_expired_key_lets_nobody_in(path: Path) -> None:
    entry = {"sha256": "aa", "user": "u", "account": "a", "plan": "free", "expires": 100}
    path.write_text(json.dumps({"keys": [entry]}))
    assert Keys(path, now=Clock(99.9)).holder(KEY + "aa")
    assert Keys(path, now=Clock(100.0)).holder(KEY + "aa") is None


@pytest.mark.parametrize("wrong", [{"user": ""}, {"plan": 1}, {"expires": "tomorrow"}])
def test_an_entry_with_a_wrong_field_makes_no_keys_file(wrong: dict[str, object]) -> None:
    entry = {"sha256": "aa", "user": "u", "account": "a", "plan": "free"}
    with pytest.raises(BadKeys):
        read_keys(json.dumps({"keys": [entry | wrong]}).encode())
