"""Pools of a cell: each has its router, and the mini model has one of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.settings import SettingError
from streams.config import StreamsConfig
from streams.runtime.main import by_pool, models_of
from tests.tiny_tokenizer import write_tokenizer
from topics.config import KafkaConfig

BOTH = KafkaConfig(pools=("main", "mini"))


def test_the_router_alone_runs_once_for_each_pool() -> None:
    assert by_pool(("intake", "router"), ("main",)) == [("intake", ""), ("router", "")]
    assert by_pool(("router", "history"), ("main", "mini")) == [
        ("router", ""),
        ("history", ""),
        ("router.mini", "mini"),
    ]


def test_the_mini_model_is_served_by_the_pool_of_that_name(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path)
    alone = models_of(BOTH, StreamsConfig(model=folder))
    both = models_of(BOTH, StreamsConfig(model=folder, mini="small"))
    assert {name: model.pool for name, model in alone.items()} == {"tiny": "main"}
    assert {name: model.pool for name, model in both.items()} == {"tiny": "main", "small": "mini"}
    assert both["small"].tokenizer.fingerprint == both["tiny"].tokenizer.fingerprint


@pytest.mark.parametrize(("kafka", "name"), [(KafkaConfig(), "small"), (BOTH, "tiny")])
def test_a_mini_model_without_a_pool_or_a_name_of_its_own_is_refused(
    tmp_path: Path, kafka: KafkaConfig, name: str
) -> None:
    with pytest.raises(SettingError, match=f"LANEWAY_MINI_MODEL='{name}': expected another name than 'tiny'"):
        models_of(kafka, StreamsConfig(model=write_tokenizer(tmp_path), mini=name))
