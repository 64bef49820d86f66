"""The README says what the code has: topics, settings, commands, the lifecycle, and files that exist."""

from __future__ import annotations

import re

from infra import docs

TEXT = docs.README.read_text()


def test_generated_blocks_are_what_the_code_says() -> None:
    assert docs.rendered(TEXT) == TEXT, "run `make docs`"


def test_every_file_in_the_tree_exists() -> None:
    tree = TEXT.partition("## Where things are")[2].partition("## Operations")[0]
    root = docs.README.parent
    named = set(re.findall(r"[a-z_]+\.py", tree))
    assert len(named) > 30
    assert not {name for name in named if not any(path.name == name for path in root.glob("[a-z]*/**/*.py"))}


def test_every_make_target_is_in_the_menu() -> None:
    lines = re.findall(r"^([a-z0-9 -]+):.*##", (docs.README.parent / "Makefile").read_text(), re.MULTILINE)
    menu = TEXT.partition("`make` shows the menu:")[2].partition(".")[0]
    targets = {f"`{target}`" for line in lines for target in line.split()} - {"`help`"}
    assert targets == set(re.findall(r"`[a-z0-9-]+`", menu))
