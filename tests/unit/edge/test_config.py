"""A bad setting stops the process, naming key, value and what is expected, and never a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.config import EdgeConfig
from edge.main import run
from schemas.settings import SettingError, load

GOOD = {"LANEWAY_CELL_KEY": "ab" * 16}


@pytest.mark.parametrize(
    ("key", "value"),
    [("LANEWAY_PORT", "70000"), ("LANEWAY_CELL", "256"), ("LANEWAY_MODELS", ","), ("LANEWAY_DEADLINE", "1801"),
     ("LANEWAY_DEADLINE", "nan"), ("LANEWAY_SEND_TIMEOUT", "0"), ("LANEWAY_KEEP_ALIVE", "-1"),
     ("LANEWAY_EDGE_DRAIN", "-1"), ("LANEWAY_ACCEPT_TIMEOUT", "x"), ("LANEWAY_MAX_BODY", "0"),
     ("LANEWAY_EDGE_PARTITIONS", "a")],
)  # fmt: skip
def test_a_bad_setting_is_refused(key: str, value: str) -> None:
    with pytest.raises(SettingError, match=f"{key}=.*expected"):
        load(EdgeConfig, GOOD | {key: value})


@pytest.mark.parametrize("key", ["", "secret", "ab" * 15, "ab" * 16 + "a", "zz" * 16])
def test_a_bad_cell_key_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(SettingError, match="LANEWAY_CELL_KEY") as caught:
        run(None, {"LANEWAY_CELL_KEY": key})
    assert not key or key not in str(caught.value)


def test_the_cell_key_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "cell.key").write_text("ab" * 16 + "\n")
    assert EdgeConfig(cell_key=str(tmp_path / "cell.key")).cell_key_bytes() == b"\xab" * 16


def test_home_partitions_are_all_or_those_given() -> None:
    assert load(EdgeConfig, GOOD).home(3) == (0, 1, 2)
    assert load(EdgeConfig, GOOD | {"LANEWAY_EDGE_PARTITIONS": "1-2"}).home(3) == (1, 2)
    with pytest.raises(SettingError, match="LANEWAY_EDGE_PARTITIONS"):
        load(EdgeConfig, GOOD | {"LANEWAY_EDGE_PARTITIONS": "3"}).home(3)


def test_an_edge_without_keys_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="LANEWAY_KEYS"):
        run(None, GOOD | {"LANEWAY_KEYS": str(tmp_path / "none.json")})
