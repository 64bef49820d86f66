"""The keys file holds digests only, is replaced whole, and what is revoked stays revoked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edge.auth import Keys
from edge.errors import Unauthorized
from infra.cli import app
from infra.local import keys
from infra.local.errors import KeysError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def called(path: Path, *words: str, status: int = 0) -> str:
    done = CliRunner().invoke(app, ["keys", *words], env={"LANEWAY_KEYS": str(path)})
    assert done.exit_code == status, done.output
    return done.stdout if status == 0 else done.stderr


def test_a_new_key_lets_its_user_in_and_only_its_digest_is_kept(path: Path) -> None:
    key = called(path, "add", "alice", "--account", "acme", "--plan", "paid", "--note", "laptop").strip()
    let_in = Keys(path).admit(key)
    assert (let_in.caller.user, let_in.caller.account, let_in.caller.plan) == ("alice", "acme", "paid")
    assert key not in path.read_text() and path.stat().st_mode & 0o777 == 0o600
    assert all(word in called(path, "list") for word in ("alice", "acme", "paid", "laptop"))


def test_a_revoked_key_lets_nobody_in_and_the_others_stay(path: Path) -> None:
    gone, stays = (called(path, "add", user).strip() for user in ("alice", "bob"))
    entry = json.loads(called(path, "list", "--json"))["keys"][0]
    assert "alice" in called(path, "revoke", entry["id"])
    assert Keys(path).admit(stays).caller.user == "bob"
    with pytest.raises(Unauthorized):
        Keys(path).admit(gone)


def test_a_key_may_have_a_plan_of_the_operators_own(path: Path) -> None:
    called(path, "add", "alice", "--plan", "gold-2")
    assert [entry.plan for entry in keys.entries(path)] == ["gold-2"]


def test_a_key_with_days_expires(path: Path) -> None:
    key = called(path, "add", "alice", "--days", "2").strip()
    [entry] = keys.entries(path)
    assert entry.created and entry.expires == entry.created + 2 * 86_400
    with pytest.raises(Unauthorized):
        Keys(path, now=lambda: float(entry.expires or 0)).admit(key)


@pytest.mark.parametrize(
    ("words", "told"),
    [(("revoke", "ffff"), "no key"), (("revoke", ""), "no key"), (("add", "a", "--plan", "a b"), "a b"),
     (("add", " "), "name"), (("add", "a", "--days", "0"), "1")],
)  # fmt: skip
def test_a_wrong_word_is_named(path: Path, words: tuple[str, ...], told: str) -> None:
    keys.add(path, keys.KeyEntry("ab" * 32, "u", "a", "free"))
    assert told in called(path, *words, status=1 if words[0] == "revoke" else 2)
    assert len(keys.entries(path)) == 1


def test_what_two_keys_begin_with_revokes_neither(path: Path) -> None:
    for last in "12":
        keys.add(path, keys.KeyEntry("ab" * 31 + f"0{last}", "u", "a", "free"))
    with pytest.raises(KeysError, match="2 keys"):
        keys.revoke(path, "AB")
    assert len(keys.entries(path)) == 2


def test_a_broken_file_is_told_and_left_alone(path: Path) -> None:
    path.write_text('{"keys": [{"user": "u"}]}')
    assert "no keys file" in called(path, "list", status=1)
    assert "no keys file" in called(path, "add", "alice", status=1)
    assert path.read_text() == '{"keys": [{"user": "u"}]}'


def test_the_key_of_up_is_kept_until_it_is_revoked(path: Path, tmp_path: Path) -> None:
    first, again = (keys.keep_key(path, tmp_path / "demo.key", "demo") for _ in range(2))
    assert first == again and len(keys.entries(path)) == 1
    keys.revoke(path, keys.entries(path)[0].id)
    fresh = keys.keep_key(path, tmp_path / "demo.key", "demo")
    assert fresh != first and [entry.sha256 for entry in keys.entries(path)] == [keys.digest(fresh)]
