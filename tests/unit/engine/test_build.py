"""The C++ ops' library: compiled once, found again, and done without where it cannot be had."""

import logging
from pathlib import Path

import pytest
import torch

from engine.errors import OpsUnavailable
from engine.ops import choose
from engine.ops.contract import Ops
from engine.ops.cpu import build
from engine.ops.cpu.build import TARGETS, Target, built, targets
from engine.ops.reference import ReferenceOps

COMPILER = """#!/bin/sh
[ "$1" = --version ] && { echo "a compiler 1.0"; exit; }
echo "$@" >> "$0.calls"
[ -e "$0.fails" ] && { echo "no such intrinsic" >&2; exit 1; }
for last in "$@"; do :; done
echo compiled > "$last"
"""


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that only writes its output, and an empty cache."""
    path = tmp_path / "compiler"
    path.write_text(COMPILER)
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return path


def test_what_was_compiled_is_found_again(compiler: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first, second = built(), built()
    assert first == second and first.path.read_text() == "compiled\n"
    [call] = compiler.with_suffix(".calls").read_text().splitlines()
    assert all(flag in call for flag in targets()[0].flags)
    assert [record.getMessage().split()[0] for record in caplog.records] == ["compiling", "compiled"]


def test_another_compiler_makes_another_library(compiler: Path) -> None:
    first = built()
    compiler.write_text(COMPILER.replace("1.0", "1.1"))
    assert built().name != first.name


def test_what_a_compiler_says_is_told_and_nothing_is_kept(compiler: Path) -> None:
    compiler.with_suffix(".fails").touch()
    with pytest.raises(OpsUnavailable, match="no such intrinsic"):
        built()
    compiler.with_suffix(".fails").unlink()
    assert built().path.exists()


def test_a_compiler_may_have_options(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", f"{compiler} -m64")
    built()
    assert compiler.with_suffix(".calls").read_text().startswith("-m64 ")


def test_a_compiler_that_knows_less_than_the_cpu_compiles_for_an_older_one(
    compiler: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    newer = Target("newer", (), ("-mnewer",))
    monkeypatch.setattr(build, "TARGETS", (newer, *TARGETS))
    compiler.write_text(COMPILER.replace('[ -e "$0.fails" ]', 'echo "$@" | grep -q mnewer'))
    assert built().name.startswith(targets()[1].name)
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "no such intrinsic" in warning and warning.endswith(f"trying {targets()[1].name}")


def test_a_cache_that_cannot_be_written_is_done_without(
    compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(OpsUnavailable, match="set XDG_CACHE_HOME to a writable folder"):
        built()
    assert caplog.records == []  # another kind of CPU would not help


def test_a_library_that_is_none_is_named_and_done_without(compiler: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(choose.ops.__wrapped__("auto"), ReferenceOps)
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"{built().path} cannot be used" in warning and "delete it" in warning


def test_without_a_compiler_torchs_ops_are_taken_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert isinstance(choose.ops.__wrapped__("auto"), ReferenceOps)
    [warning] = caplog.records
    assert "no C++ compiler: looked for no-such-compiler" in warning.getMessage()
    with pytest.raises(OpsUnavailable, match="no-such-compiler"):
        choose.ops.__wrapped__("cpu")


def test_this_cpus_ops_are_named_by_their_kind(cpu_ops: Ops) -> None:
    assert cpu_ops.name.startswith(f"cpu-{targets()[0].name}-")
    capable = torch.cpu.get_capabilities()
    better = TARGETS[: TARGETS.index(targets()[0])]
    assert all(not all(capable.get(flag) for flag in kind.needs) for kind in better)


def test_bfloat16_is_chosen_where_the_cpu_multiplies_it() -> None:
    expected = torch.bfloat16 if targets()[0].name.endswith("-bf16") else torch.float32
    assert (choose.dtype("auto"), choose.dtype("bfloat16"), choose.dtype("int8")) == (
        expected,
        torch.bfloat16,
        torch.int8,
    )
