"""Settings come from the environment once, and a wrong one is named with its value and what was expected."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from schemas.settings import Setting, SettingError, described, load, setting


@dataclass(frozen=True)
class Config:
    name: str = setting("T_NAME", default="laneway", doc="a name")
    port: int = setting("T_PORT", default=80, doc="a port")
    share: float = setting("T_SHARE", default=0.5, doc="a share")
    tls: bool = setting("T_TLS", default=False, doc="TLS or not")
    folder: Path = setting("T_FOLDER", default=Path("here"), doc="a folder")
    homes: tuple[int, ...] = setting("T_HOMES", default=(0,), doc="partitions")
    pools: tuple[str, ...] = setting("T_POOLS", default=("main",), doc="pools")
    key: int = setting("T_KEY", default=0, doc="a secret number", secret=True)
    unset: str = "no variable of its own"

    def __post_init__(self) -> None:
        if self.port > 65535:
            raise SettingError(f"T_PORT={self.port}: expected at most 65535")


def test_nothing_set_is_the_defaults() -> None:
    assert load(Config, {"OTHER": "1"}) == Config()


def test_each_variable_is_read_as_its_type() -> None:
    given = {"T_NAME": "n", "T_PORT": "8080", "T_SHARE": "0.25", "T_TLS": "Yes", "T_FOLDER": "/a/b"}
    lists = {"T_HOMES": "4-6,1", "T_POOLS": "main, mini,"}
    config = load(Config, given | lists)
    assert config == Config("n", 8080, 0.25, True, Path("/a/b"), (1, 4, 5, 6), ("main", "mini"))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("T_PORT", "eighty", "an integer"),
        ("T_SHARE", "half", "a number"),
        ("T_TLS", "maybe", "true or false"),
        ("T_HOMES", "7-", "partitions such as 0-7 or 0,3,5"),
        ("T_HOMES", "1,7-3", "partitions such as 0-7 or 0,3,5"),
        ("T_HOMES", "-1", "partitions such as 0-7 or 0,3,5"),
        ("T_HOMES", "", "partitions such as 0-7 or 0,3,5"),
        ("T_PORT", "70000", "at most 65535"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(key: str, value: str, expected: str) -> None:
    with pytest.raises(SettingError) as raised:
        load(Config, {key: value})
    assert key in str(raised.value)
    assert value in str(raised.value)
    assert str(raised.value).endswith(f"expected {expected}")


def test_a_secret_is_never_shown() -> None:
    with pytest.raises(SettingError, match=r"T_KEY=\*\*\*: expected an integer") as raised:
        load(Config, {"T_KEY": "hunter2"})
    assert "hunter2" not in str(raised.value)


def test_settings_describe_themselves() -> None:
    by_key = {found.key: found for found in described(Config)}
    assert by_key["T_PORT"] == Setting("T_PORT", 80, "an integer", "a port", False)
    assert by_key["T_KEY"].secret
    assert len(by_key) == 8
