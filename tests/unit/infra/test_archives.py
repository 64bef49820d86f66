from __future__ import annotations

from pathlib import Path

import pytest

from infra.local import archives


@pytest.fixture
def jars(tmp_path: Path) -> tuple[Path, ...]:
    for name in ("a.jar", "b.jar"):
        (tmp_path / name).touch()
    return (tmp_path / "a.jar", tmp_path / "b.jar")


def test_an_archive_is_used_once_it_is_there(jars: tuple[Path, ...]) -> None:
    archive = archives.archive_of(jars)
    assert archives.with_classes(jars) == ["-cp", f"{jars[0]}:{jars[1]}"]
    archive.touch()
    assert archives.with_classes(jars) == [f"-XX:SharedArchiveFile={archive}", "-cp", f"{jars[0]}:{jars[1]}"]


def test_other_jars_have_another_archive_and_a_link_to_them_the_same(jars: tuple[Path, ...], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    linked = tuple(tmp_path / "link" / jar.name for jar in jars)
    assert archives.archive_of(linked) == archives.archive_of(jars) != archives.archive_of(jars[:1])


def test_an_archive_is_made_once(jars: tuple[Path, ...]) -> None:
    tried: list[str] = []
    archives.archive_of(jars).touch()
    archives.keep_archive("Kafka", jars, lambda _, option: tried.append(option), tried.append)
    assert tried == []


def test_a_program_of_which_java_makes_no_archive_is_told_of_and_starts_without(jars: tuple[Path, ...]) -> None:
    said: list[str] = []
    archives.keep_archive("Kafka", jars, lambda *_: None, said.append)  # no list of classes was written
    assert len(said) == 2 and "Kafka starts without an archive" in said[1]
    assert archives.with_classes(jars)[0] == "-cp"
