from __future__ import annotations

import pytest

from schemas.tokenizer import ChatTokenizer
from tests.tiny_tokenizer import write_tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return ChatTokenizer.load(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))
