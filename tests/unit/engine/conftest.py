"""The model that engine tests run: a tiny random one."""

from pathlib import Path

import pytest

from schemas.tokenizer import ChatTokenizer
from tests.tiny_llama import write_tiny_llama


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny: Path) -> ChatTokenizer:
    return ChatTokenizer.load(tiny)
